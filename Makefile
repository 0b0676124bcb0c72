# The targets that people and .ci/run use. They need Go, make and bash; `make race-test`
# needs a C compiler too.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL: # the groups of make test share the processors

GO        ?= go
ARGS      ?=
FUZZTIME  ?= 20s
SIMTIME   ?= 1800
ROUNDS    ?= 0
CLUSTERROUNDS ?= 30
UPGRADEROUNDS ?= 2
STORETRIES ?= 50
LEASETRIES ?= 100
SEEDS     ?= 2000
TIMES     ?= 20
PLAYERS   ?= go
BENCH     ?= .
COUNT     ?= 6
BENCHFILE ?= tmp/bench.txt
BENCHJSON ?= tmp/bench.json
CARRIERCASE ?= 100,20,200,1
PROFILECASE ?= 100,20,200,1

# make race-test leaves out what plays in one goroutine, where the race detector finds nothing and takes ten times as long: the tests of
# pure packages, and in all packages the tests whose names SIMULATED has. internal/arch checks both lists.
PURE := dnp dnp/admit dnp/wire dnp/netstate dnp/linkmsg dnp/command dnp/outbox replication replication/view replication/payload cluster cluster/lease cluster/forward \
	sessionlog internal/fence internal/format subject lludp/zerocode lludp lludp/wire godot/variant publisher/layout internal/auth \
	internal/edge/fanout internal/edge/takeover internal/edge/lludp/viewer internal/edge/variant/protocol internal/turn/heap internal/simnet internal/backup internal/inspect internal/top internal/latency interest
space := $(subst ,, )
SIMULATED := ^Test(Simulation|Authority|Chaos|ForgedLogins|Takeover|TakeoverCarried|TakeoverTracked|TakeoverCutOff|TakeoverNodeLost|TakeoverNodeOfSpaceLost|DrainPause|Woken|RecycledByTheNext|LostToTheDead|ManySessions|FailoverAnswers|LoginBadPath|Storm|Trouble|LargeSpace|HandOver|Election|Recycle|Damage|LossOfMessages|LateJoin|StoreWiped|SlowStore|MoreStatesThanLinks|RightsCannotBeWidened|BadPath|CalmPath|ManyLinks|Wraps|RateYields|RateStays|Overrated|Bottleneck|Converge|Move|EdgeProof|Stale|Patience|Passive|Laps|LapsOfClient|LapsWithoutRule)$$
# The tests of ENGINE start the editor of Godot 3, many times, or a web build of Godot 4 in a browser.
ENGINE := ^TestGodot(Client|Game|Flock|Readme)|^TestEngine4$$

# WHILE_COMPILING says what goes on when the command behind it takes more than two seconds: Go is silent while it compiles.
WHILE_COMPILING := trap 'kill $$says' EXIT; { sleep 2; echo "Compiling: a minute or two if Go's build cache is empty."; while sleep 20; do echo "Still compiling ($$SECONDS s)."; done; } >&2 & says=$$!;

VERSION   ?=
IMAGE     ?= ghcr.io/dnprelay/dnprelay:dev

HELM_VERSION := v3.22.0
HELM := bin/tools/helm-$(HELM_VERSION)

STATICCHECK_VERSION := v0.8.2
STATICCHECK := bin/tools/staticcheck-$(STATICCHECK_VERSION)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: ## Run everything in one process, with demo states (ARGS="--no-demo" and so on)
	@$(WHILE_COMPILING) $(GO) build -o bin/ ./cmd/relay ./cmd/dnpctl $(if $(findstring --edges,$(ARGS)),./cmd/edge)
	@exec bin/relay dev $(ARGS)

# Without -trimpath, so that go vet, tests and `go run` in a game beside the clone use what was compiled here; releases have it.
.PHONY: build
build: ## Build relay, edge and dnpctl into bin/
	$(GO) build -o bin/ ./cmd/...

# TEST runs go test, a line for each package, and at the end says what failed and what was skipped, with reasons. It gives the tests the
# programs, which it builds before, so that each package does not link them anew. Test programs have no tables for debuggers (-w), because they are
# linked each time: that saves a quarter of the linking.
PROGRAMS := bin/test
TEST = DNP_TEST_PROGRAMS="$(CURDIR)/$(PROGRAMS)" "$(CURDIR)/bin/gotestsum" --format pkgname --format-hide-empty-pkg -- -timeout 20m -ldflags=-w

.PHONY: test-programs
test-programs:
	@$(WHILE_COMPILING) $(GO) build -o $(PROGRAMS)/ ./cmd/... && $(GO) -C testbed build -o ../bin/ gotest.tools/gotestsum && $(GO) list $(RACE) -test -export ./... >/dev/null

.PHONY: test
test: test-programs ## Run all tests but those of engines, browsers, images and clusters, and few rounds of the simulations, of which make sim plays more (ARGS="-run Name" and so on)
	@$(TEST) -p 4 -skip '$(ENGINE)' $(ARGS) ./internal/systest $$($(GO) list ./... | grep -v /systest$$) # the longest begins first

.PHONY: race-test
race-test: RACE := -race
race-test: test-programs ## Run the tests with goroutines with the race detector, those of testbed, too, in 6 minutes; it needs a C compiler
	@$(TEST) -p 4 $(RACE) -skip '$(SIMULATED)|$(ENGINE)' $(ARGS) ./internal/systest $$($(GO) list ./... | grep -vxE '[^/]+/[^/]+/[^/]+/($(subst $(space),|,$(strip $(PURE) internal/systest)))')
	@cd testbed && $(TEST) $(RACE) $(ARGS) ./...

.PHONY: godot-test
godot-test: test-programs ## Test the addon for Godot 3, the game and the flock in an engine, in 2 minutes; needs godot3-server
	@$(TEST) -count=1 -run '$(ENGINE)' $(ARGS) ./internal/systest

.PHONY: clients-test
clients-test: ## Test the TypeScript client: its codec, a simulated network, a real edge; needs Node 20 or newer and npm
	cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund && npm test

.PHONY: recipes-test
recipes-test: ## Test the game servers of examples/publishers in TypeScript and Python; needs Node 20 or newer and npm
	cd examples/publishers/typescript && npm ci --ignore-scripts --no-audit --no-fund && npm run build
	$(GO) test -count=1 -v ./examples/publishers

.PHONY: viewer-test
viewer-test: build ## Have an unmodified bot of Second Life (node-metaverse) play on `relay dev`; needs Node 20 or newer and npm
	cd internal/edge/lludp/testdata/bot && npm ci --ignore-scripts --no-audit --no-fund && npm test

.PHONY: console
console: ## Build script and style of the console from the folder console into internal/console/assets; needs Node 20 or newer and npm
	cd console && npm ci --ignore-scripts --no-audit --no-fund && npm run build

.PHONY: browser-test
browser-test: ## Test pages in Chromium against `relay dev`, with pictures in tmp/screens, in 4 minutes; needs Node 20.10 or newer, npm and Chromium (CHROMIUM=program)
	@mkdir -p tmp/screens
	cp examples/web/dnprelay.js tmp/dnprelay.js
	cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund && npm run bundle
	@cmp examples/web/dnprelay.js tmp/dnprelay.js || { echo "examples/web/dnprelay.js was not that of clients/typescript; now it is" >&2; exit 1; }
	@rm -rf tmp/console && cp -r internal/console/assets tmp/console
	$(MAKE) --no-print-directory console
	@diff -r internal/console/assets tmp/console >/dev/null || { echo "internal/console/assets was not that of console; now it is" >&2; exit 1; }
	cd console && npm test
	cd clients/typescript && SCREENS="$(CURDIR)/tmp/screens" npm run browser-test

.PHONY: console-pictures
console-pictures: ## Take the pictures of the console in README.md, in a minute; needs Node 20.10 or newer, npm and Chromium (CHROMIUM=program)
	@mkdir -p tmp/screens
	cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund && npx tsc && \
		SCREENS="$(CURDIR)/tmp/screens" node --experimental-websocket --test --test-name-pattern='^the map shows' build/test/browser/console.test.js
	cp tmp/screens/console-world.png console/world.png
	cp tmp/screens/console-state.png console/state.png

.PHONY: console-load
console-load: ## What the console costs with 10,000 states and 1,000 clients: first paint, frames per second, CPU, in 2 minutes (STATES, CLIENTS, MOVES); needs Linux, Node 20.10, npm and Chromium
	cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund && npx tsc && SCREENS="$(CURDIR)/tmp/screens" node --experimental-websocket --test build/test/browser/consoleload.js

.PHONY: godot4
godot4: ## Write the addon for Godot 4 into clients/godot/godot4/addons, from that for Godot 3
	@rm -rf clients/godot/godot4/addons
	$(GO) run ./scripts/godot4 clients/godot/addons/dnp clients/godot/godot4/addons/dnp clients/godot/godot4

.PHONY: godot4-test
godot4-test: ## Test the addon for Godot 4 in a web build of the engine, in Chromium, in 2 minutes; needs Node 20 or newer, npm and Chromium (CHROMIUM=program)
	cd clients/godot/web && npm ci --ignore-scripts --no-audit --no-fund && npm test
	$(GO) test -count=1 -run TestEngine4 ./godot/variant

.PHONY: godot-bench
godot-bench: ## What the Godot addon costs per value and per frame, in 10 s; needs godot3-server
	@HOME="$$(mktemp -d)" LANG=en godot3-server -s clients/godot/test/bench.gd

.PHONY: godot-picture
godot-picture: build ## Take the picture of clients/godot/README.md, in 15 s; needs godot3, godot3-server and Xvfb
	scripts/godot-picture clients/godot/game.png

.PHONY: readme-test
readme-test: ## Run the blocks of the READMEs in a clone of HEAD, and compare what they print, in 5 minutes; needs Linux, Node 20, npm and the ports of the READMEs
	$(GO) run ./scripts/readme

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (20s)
	@GO="$(GO)" scripts/fuzz "$(FUZZTIME)"

.PHONY: sim
sim: ## Simulate the whole system for SIMTIME (1800) seconds, or ROUNDS rounds in that time, with new seeds or those from SEED on, HOSTILE (half, on, off)
	@GO="$(GO)" scripts/sim $(SIMTIME) $(ROUNDS)

.PHONY: promises
promises: ## Try what INTERFACES.md guarantees TIMES (20) times as often as make test does: PLAYERS (go; go,ts needs Node 20 or newer and npm) by all carriers, over all paths, at one edge and two; SEED=N repeats, ARGS="-run TestKicked/ts,ws,c2,1" tries a part
	$(if $(findstring ts,$(PLAYERS)),cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund && npx tsc)
	nice $(GO) test -count=1 -timeout 12h ./internal/promises -all -times $(TIMES) -players $(PLAYERS) $(if $(SEED),-seed $(SEED)) $(ARGS)

.PHONY: mutants
mutants: ## Put deliberate faults into the source, one at a time, and expect a test to notice each; half an hour
	nice $(GO) test -count=1 ./internal/mutants -run '^TestMutants$$' -mutants -v -timeout 4h $(ARGS) | grep -vE '^ *(=== |--- PASS)'

.PHONY: testbed
testbed: build
	$(GO) build -o bin/ github.com/nats-io/nats-server/v2
	cd testbed && $(GO) build -o ../bin/ ./cmd/testbed
	@mkdir -p tmp

.PHONY: cluster-test
cluster-test: testbed ## Break a cluster in network namespaces, CLUSTERROUNDS (30) of each fault, 25 minutes; needs root
	bin/testbed cluster-test -json tmp/cluster-test.json -rounds $(CLUSTERROUNDS) $(ARGS)

.PHONY: cluster-test-quick
cluster-test-quick: testbed ## Three rounds of each fault, in 4 minutes
	bin/testbed cluster-test -json tmp/cluster-test.json -rounds 3 $(ARGS)

.PHONY: torture
torture: testbed ## Break edges, Redis and NATS servers under running sessions: 200 kills, 90 drains and so on, 30 minutes; needs redis-server, and root to cut servers off
	bin/testbed torture -json tmp/torture.json $(ARGS)

.PHONY: torture-quick
torture-quick: testbed ## A twenty-fifth of that, in 4 minutes
	bin/testbed torture -json tmp/torture.json -scale 0.04 -stop-after 300s $(ARGS)

.PHONY: torture-nats
torture-nats: testbed ## Kill, stop and cut off each of three NATS servers, alone and with an edge, 30 rounds each, in an hour; needs root (ARGS="-seed N -phases a,b -rounds N")
	bin/testbed torture -json tmp/torture-nats.json -scale 10 -phases nats-kill,nats-kill-edge,nats-stop,nats-stop-edge,nats-cut,nats-cut-edge,nats-empty,steady $(ARGS)

.PHONY: torture-store
torture-store: ## Stop NATS servers while a relay loads its shards, STORETRIES (50) times with one server and as often with three, in 40 minutes; nothing that was acknowledged may be missing or old
	$(GO) test ./internal/systest -count=1 -timeout 170m -run '^TestTortureStore$$' -v -store-tries $(STORETRIES) $(ARGS)
	$(GO) test ./internal/systest -count=1 -timeout 170m -run '^TestTortureStore$$' -v -store-tries $(STORETRIES) -store-servers 3 $(ARGS)

.PHONY: torture-store-quick
torture-store-quick: ## One such try with one server, in less than a minute
	$(GO) test ./internal/systest -count=1 -timeout 20m -run '^TestTortureStore$$' -v -store-tries 1 $(ARGS)

.PHONY: lease-times
lease-times: ## Measure takeovers of LEASETRIES (100) killed and as many stopped relays, starts and outages with one NATS server and with three, in an hour on an idle machine (ARGS="-lease-alive 1h" adds two hours beside load)
	for servers in 1 3; do for shards in 64 512; do $(GO) test ./internal/systest -count=1 -timeout 4h -run '^TestLeaseTimes$$' -v -lease-tries $(LEASETRIES) -lease-servers $$servers -lease-shards $$shards $(ARGS) || exit 1; done; done

.PHONY: drill
drill: ## Do what deploy/RUNBOOK.md says under players: the power is cut, NATS comes back slow, a space is restored from a backup, servers are lost and replaced, one becomes three and five, passwords change, in 3 minutes
	$(GO) test ./internal/systest -count=1 -timeout 30m -run '^Test(Drill|Grow)$$' -drill -v $(ARGS)

.PHONY: upgrade-test
upgrade-test: testbed ## Stop the last release under load and start the tree on what it stored, UPGRADEROUNDS (2) times, 2 minutes; needs redis-server and git history
	bin/testbed upgrade-test -json tmp/upgrade-test.json -rounds $(UPGRADEROUNDS) $(ARGS)

.PHONY: model
model: ## Search the model of the log in three copies exhaustively, in less than 4 minutes; needs spin
	@scripts/model $(ARGS)

.PHONY: sim-session
sim-session: ## Simulate SEEDS (2000) seeds of durable sessions whose edges die, of the log in three copies, and of logs that move
	$(GO) test -timeout 170m -run '^Test(Simulation|Quorum)$$' -v ./sessionlog ./sessionlog/quorumlog -seeds $(SEEDS) $(ARGS)

.PHONY: alerts-test
alerts-test: ## Check the alerts and the queries of the dashboards with promtool, if there is one (FETCH=1 takes Debian's, BUILD=1 builds it)
	@GO="$(GO)" scripts/alerts-test

.PHONY: dashboards
dashboards: ## Write the Grafana dashboards into helm/relay/files/dashboards, from where the chart and compose.watch.yaml take them
	$(GO) run ./deploy/dashboards helm/relay/files/dashboards

.PHONY: bench
bench: ## Run bench-code and bench-system once each, in less than 10 minutes
	@$(MAKE) --no-print-directory bench-code COUNT=1
	@$(MAKE) --no-print-directory bench-system

.PHONY: bench-code
bench-code: ## Run the benchmarks of packages COUNT times (6) into BENCHFILE (tmp/bench.txt) for benchstat
	@mkdir -p "$(dir $(BENCHFILE))"
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(ARGS) ./... | tee "$(BENCHFILE)"
	@echo "Compare two such files with: $(GO) run golang.org/x/perf/cmd/benchstat@latest OLD NEW"

.PHONY: bench-system
bench-system: testbed ## Measure processes of a whole deployment, 7 minutes (BENCHJSON=tmp/bench.json)
	@mkdir -p "$(dir $(BENCHJSON))"
	bin/testbed bench -json "$(BENCHJSON)" $(ARGS)

.PHONY: bench-quick
bench-quick: testbed ## A few cases of bench-system, in less than a minute
	@mkdir -p "$(dir $(BENCHJSON))"
	bin/testbed bench -quick -json "$(BENCHJSON)" $(ARGS)

.PHONY: bench-carriers
bench-carriers: testbed ## Clients by UDP, WebSocket and WebTransport side by side, and 10,000 idle ones, 3 minutes (CARRIERCASE=100,20,200,1)
	@mkdir -p "$(dir $(BENCHJSON))"
	bin/testbed bench -case "$(CARRIERCASE)" -carrier udp,websocket,webtransport -rounds 5 -window 2s -json "$(BENCHJSON)" $(ARGS)
	bin/testbed bench -idle 10000 -carrier udp,websocket

.PHONY: bench-interest
bench-interest: testbed ## 10,000 objects that wander about and 500 clients that see their neighbourhood, with a picture in tmp/interest.svg, 2 minutes (ARGS="-at-once" and so on)
	@mkdir -p tmp
	bin/testbed bench-interest -svg tmp/interest.svg -json tmp/interest.json $(ARGS)

.PHONY: bench-trace
bench-trace: ## What tracing costs, beside a build of the commit BASE, 6 minutes (CASE=100,20,1000,1)
	@GO="$(GO)" scripts/bench-trace

.PHONY: flood
flood: testbed ## Forge requests, logins and closes on loopback while clients play and connect: every kind of login, with a log and Redis, with two edges, in 5 minutes; needs redis-server
	bin/testbed bench -flood $(ARGS)

.PHONY: profile
profile: testbed ## CPU and allocation profiles of an edge under load, into tmp/profile (PROFILECASE=100,20,200,1)
	bin/testbed bench -case "$(PROFILECASE)" -rounds 1 -window 30s -profile tmp/profile $(ARGS)
	@echo "Look at one with: $(GO) tool pprof -http=: bin/edge tmp/profile/FILE"

.PHONY: image
image: ## Build the container image into tmp/image/dnprelay.tar, without a daemon (IMAGE=name:tag)
	GO="$(GO)" deploy/image/pack tmp/image "$(IMAGE)"

.PHONY: image-test
image-test: ## Build the image twice, the second time from a copy of the source in another folder, and compare
	GO="$(GO)" deploy/image/same

.PHONY: generate
generate: godot4 dashboards ## Write what the repository does not have because commands make it

.PHONY: manifests
manifests: $(HELM) ## Render the chart into tmp/dnprelay.yaml, for clusters without Helm
	@mkdir -p tmp
	HELM="$(CURDIR)/$(HELM)" deploy/manifests/render >tmp/dnprelay.yaml

.PHONY: chart-test
chart-test: $(HELM) ## Lint and render the chart, decode every object, try values that it has to refuse
	HELM="$(CURDIR)/$(HELM)" GO="$(GO)" helm/test/run

.PHONY: k8s-test
k8s-test: $(HELM) build ## Install, play and break things on a real Kubernetes cluster on this machine, 11 minutes; needs root
	GO="$(GO)" deploy/image/pack tmp/image localhost/dnprelay:dev
	GO="$(GO)" deploy/image/pack tmp/image --test
	cd testbed && CGO_ENABLED=0 $(GO) build -o ../bin/ ./cmd/testbed
	testbed/k8stest/run -helm "$(HELM)" -json tmp/k8s-test.json $(ARGS)

$(HELM):
	@mkdir -p "$(dir $@)"
	CGO_ENABLED=0 GOBIN="$(CURDIR)/$(dir $@)" $(GO) install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
	@mv "$(dir $@)helm" "$@"

.PHONY: reproducible
reproducible: ## Build twice, from two folders with caches of their own, and compare the bytes
	@GO="$(GO)" scripts/reproducible

.PHONY: release
release: ## Make the archives, the addon for Godot 4, SBOMs and checksums of a release in tmp/release (VERSION=v1.2.3)
	@rm -rf tmp/release
	$(GO) run ./scripts/release -version "$(VERSION)" -out tmp/release

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...
	cd testbed && $(GO) vet ./...

.PHONY: lint
lint: $(STATICCHECK) ## gofmt and staticcheck (rules in staticcheck.conf)
	@echo "gofmt -s -l ."
	@files="$$(gofmt -s -l .)"; if [ -n "$$files" ]; then echo "not formatted (gofmt -s -w repairs it):"; echo "$$files"; exit 1; fi
	$(STATICCHECK) ./...
	cd testbed && ../$(STATICCHECK) ./...

$(STATICCHECK):
	@mkdir -p "$(dir $@)"
	GOBIN="$(CURDIR)/$(dir $@)" $(GO) install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)
	@mv "$(dir $@)staticcheck" "$@"

.PHONY: clean
clean: ## Remove what these targets made
	rm -rf bin tmp clients/godot/godot4/addons helm/relay/files/dashboards clients/typescript/build clients/typescript/dist clients/typescript/node_modules clients/godot/web/node_modules examples/publishers/typescript/build examples/publishers/typescript/node_modules
