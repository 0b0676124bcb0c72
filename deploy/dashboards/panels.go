package main

import "fmt"

// selector matches the nodes that the reader chose.
const selector = `job=~"$job",instance=~"$instance"`

// gauge returns the sum of a metric by instance.
func gauge(metric string) query {
	return query{fmt.Sprintf(`sum by (instance) (%s{%s})`, metric, selector), "{{instance}}"}
}

// rate returns the increase of a counter per second, by instance.
func rate(metric string) query { return rateBy(metric, "instance", "") }

// rateBy returns the increase per second by a label, for series that match.
func rateBy(metric, label, match string) query {
	s := selector
	if match != "" {
		s += "," + match
	}
	return query{fmt.Sprintf(`sum by (%s) (rate(%s{%s}[$__rate_interval]))`, label, metric, s), "{{" + label + "}}"}
}

// busy is rateBy without values of the label that do not occur.
func busy(metric, label string) query {
	q := rateBy(metric, label, "")
	q.expr += " > 0"
	return q
}

// named returns q with another legend.
func (q query) named(legend string) query { return query{q.expr, legend} }

// quantiles returns the 50th, 99th and 99.9th percentile of a histogram.
func quantiles(metric string) (list []query) {
	for _, q := range []string{"0.5", "0.99", "0.999"} {
		list = append(list, query{fmt.Sprintf(`histogram_quantile(%s, sum by (le) (rate(%s_bucket{%s}[$__rate_interval])))`, q, metric, selector), q})
	}
	return list
}

func ratio(a, b query) query { return query{a.expr + " / " + b.expr, a.legend} }

var dashboards = []dashboard{
	{"overview", "dnprelay / overview", `{__name__=~"dnp_edge_sessions|dnp_relay_shards"}`, []row{
		{"Players and authority", []panel{
			{"Sessions", "Players, by edge.", "short", []query{gauge("dnp_edge_sessions")}, false},
			{"Shards held", "The sum of the lines must be the number of shards; otherwise some players see nothing new.", "short", []query{
				gauge("dnp_relay_shards"), {"max(dnp_relay_shards_all{" + selector + "})", "all"},
			}, false},
			{"Members", "Nodes as each node sees them.", "short", []query{gauge("dnp_cluster_members")}, false},
		}},
		{"From the game server to the player", []panel{
			{"Publishes", "Messages of game servers.", "cps", []query{rate("dnp_relay_publishes_total")}, false},
			{"Publish delay", "From the arrival of a publish until its batch has left. Points are traces.", "s", quantiles("dnp_relay_publish_delay_seconds"), true},
			{"Flush delay", "From the arrival of a batch until its datagrams have left. Points are traces.", "s", quantiles("dnp_edge_flush_delay_seconds"), true},
			{"Updates", "Links in LinkUpdates to players.", "cps", []query{rateBy("dnp_edge_updates_total", "instance", `direction="out"`)}, false},
			{"Bytes to players", "Without headers of IP and UDP.", "Bps", []query{rateBy("dnp_edge_io_bytes_total", "instance", `direction="out"`)}, false},
			{"Age of unstored changes", "A crash of a relay would lose this much.", "s", []query{gauge("dnp_relay_durable_age_seconds")}, false},
		}},
		{"Problems", []panel{
			{"Gaps and repairs", "Batches that edges missed, and their requests for repair.", "cps", []query{
				rate("dnp_edge_gaps_total").named("gaps {{instance}}"), rate("dnp_edge_range_requests_total").named("ranges {{instance}}"),
				rate("dnp_edge_keyframe_requests_total").named("keyframes {{instance}}"),
			}, false},
			{"Bus messages lost", "By reason.", "cps", []query{
				busy("dnp_nats_drops_total", "reason").named("nats {{reason}}"), busy("dnp_edge_bus_lost_total", "reason").named("edge {{reason}}"),
				busy("dnp_relay_bus_lost_total", "reason").named("relay {{reason}}"),
			}, false},
			{"Connections to NATS", "Needed and up.", "short", []query{
				gauge("dnp_nats_connected").named("up {{instance}}"), gauge("dnp_nats_connections").named("needed {{instance}}"),
			}, false},
			moved,
			{"Unstored messages of players", "Messages that DNP_FROM has not confirmed.", "short", []query{gauge("dnp_session_from_waiting")}, false},
			{"Errors of the session log", "Answers other than ok, and commands that Redis servers did not answer.", "cps", []query{
				rateBy("dnp_session_log_appends_total", "answer", `answer!="ok"`).named("write {{answer}}"),
				rateBy("dnp_session_log_reads_total", "answer", `answer!="ok"`).named("read {{answer}}"),
				rate("dnp_session_affinity_failures_total").named("redis {{instance}}"),
			}, false},
		}},
		processes,
	}},
	{"edge", "dnprelay / edge", "dnp_edge_sessions", []row{
		{"Players", []panel{
			{"Sessions", "And the most that the edge accepts.", "short", []query{gauge("dnp_edge_sessions"), gauge("dnp_edge_sessions_max").named("most {{instance}}")}, false},
			{"Logins", "By reason of refusal; none = accepted.", "cps", []query{busy("dnp_edge_logins_total", "reason")}, false},
			{"Sessions that ended", "By reason.", "cps", []query{busy("dnp_edge_closes_total", "reason")}, false},
			{"Bytes per player", "To each player, without headers of IP and UDP.", "Bps", []query{
				ratio(rateBy("dnp_edge_io_bytes_total", "instance", `direction="out"`), gauge("dnp_edge_sessions")),
			}, false},
			{"Updates that wait", "Share of the updates that had to wait for the budget of their client.", "percentunit", []query{
				ratio(rate("dnp_edge_updates_deferred_total"), rateBy("dnp_edge_updates_total", "instance", `direction="out"`)),
			}, false},
			{"Flush delay", "From the arrival of a batch until its datagrams have left. Points are traces.", "s", quantiles("dnp_edge_flush_delay_seconds"), true},
		}},
		{"Datagrams", []panel{
			{"Datagrams", "In and out.", "pps", []query{rateBy("dnp_edge_datagrams_total", "direction", "")}, false},
			{"Datagrams per system call", "In and out.", "short", []query{
				ratio(rateBy("dnp_edge_datagrams_total", "direction", ""), rateBy("dnp_edge_socket_batches_total", "direction", "")),
			}, false},
			{"Dropped input", "By reason.", "cps", []query{busy("dnp_edge_drops_total", "reason")}, false},
			{"Datagrams that the system dropped", "By reason; overflow = not read in time.", "cps", []query{busy("dnp_edge_socket_drops_total", "reason")}, false},
			{"Repeated", "Reliable commands, values of quiet states, and values of links in the round over all links.", "cps", []query{
				rate("dnp_edge_resends_total").named("commands {{instance}}"), rate("dnp_edge_refreshes_total").named("states {{instance}}"),
				rate("dnp_edge_scrubs_total").named("links {{instance}}"),
			}, false},
			{"Waits and single sends", "Flushes that waited for the socket, and batches of datagrams that were sent one by one.", "cps", []query{
				rate("dnp_edge_socket_waits_total").named("waits {{instance}}"), rate("dnp_edge_socket_uncut_total").named("single {{instance}}"),
			}, false},
		}},
		sights,
		{"Browsers", []panel{
			{"Connections", "By WebSocket and WebTransport.", "short", []query{
				{"sum by (kind) (dnp_carrier_connections{" + selector + "})", "{{kind}}"}, gauge("dnp_carrier_connections_max").named("most {{instance}}"),
			}, false},
			{"Connections made", "And those that resume a session.", "cps", []query{
				rate("dnp_carrier_opened_total").named("all {{instance}}"), rate("dnp_carrier_resumed_total").named("resumed {{instance}}"),
			}, false},
			{"Connections that ended or were refused", "By reason.", "cps", []query{
				busy("dnp_carrier_closes_total", "reason").named("ended {{reason}}"), busy("dnp_carrier_refusals_total", "reason").named("refused {{reason}}"),
			}, false},
			{"Clients that took nothing for a while", "Their values waited.", "cps", []query{rate("dnp_carrier_waits_total")}, false},
			{"Datagrams dropped", "By reason; forged = by UDP in the name of a browser.", "pps", []query{busy("dnp_carrier_drops_total", "reason")}, false},
		}},
		variants,
		viewers,
		{"Replicas", []panel{
			{"Batches", "Applied, summed over the workers.", "cps", []query{rate("dnp_edge_batches_total")}, false},
			{"Messages of holders not applied", "By reason.", "cps", []query{busy("dnp_edge_replica_drops_total", "reason")}, false},
			{"Differences", "States that differed from the holder's. There should be none.", "cps", []query{rate("dnp_edge_divergence_total")}, false},
			{"States and spaces", "Summed over the workers.", "short", []query{
				gauge("dnp_edge_states").named("states {{instance}}"), gauge("dnp_edge_spaces").named("spaces {{instance}}"),
			}, false},
			{"Waiting in inboxes", "Bytes of bus messages that wait for a worker. A worker drops messages beyond 64 MiB.", "bytes", []query{gauge("dnp_edge_inbox_io_bytes")}, false},
			{"Writes of clients", "Repeated, refused, dropped.", "cps", []query{
				rate("dnp_edge_writes_repeated_total").named("repeated {{instance}}"), rate("dnp_edge_writes_refused_total").named("refused {{instance}}"),
				rate("dnp_edge_writes_dropped_total").named("dropped {{instance}}"),
			}, false},
		}},
		{"Durable sessions", []panel{
			{"Durable sessions", "Sessions that the edge serves or considers; draining 1 = the edge hands them over.", "short", []query{
				gauge("dnp_session_durable"), gauge("dnp_session_draining").named("draining {{instance}}"),
			}, false},
			moved,
			{"Session log", "Writes and reads, by answer.", "cps", []query{
				busy("dnp_session_log_appends_total", "answer").named("write {{answer}}"), busy("dnp_session_log_reads_total", "answer").named("read {{answer}}"),
			}, false},
			{"Redis", "Round trips, and commands without an answer, by server.", "cps", []query{
				busy("dnp_session_affinity_trips_total", "server"), busy("dnp_session_affinity_failures_total", "server").named("failures {{server}}"),
			}, false},
			{"Messages of players", "Messages that DNP_FROM confirmed, and attempts that it did not confirm.", "cps", []query{
				rate("dnp_session_from_stored_total"), rate("dnp_session_from_failures_total").named("failures {{instance}}"),
			}, false},
			{"Unstored messages of players", "Messages that DNP_FROM has not confirmed.", "short", []query{gauge("dnp_session_from_waiting")}, false},
		}},
		{"Forwarding", []panel{
			{"Datagrams between edges", "By outcome.", "pps", []query{busy("dnp_forward_datagrams_total", "kind")}, false},
			{"Datagrams between edges lost", "By reason, with those that the system dropped.", "pps", []query{
				busy("dnp_forward_drops_total", "reason"), busy("dnp_forward_socket_drops_total", "reason").named("system {{reason}}"),
			}, false},
			{"Other edges", "Known, and those whose heartbeats are missing.", "short", []query{
				gauge("dnp_forward_peers").named("known {{instance}}"), gauge("dnp_forward_suspects").named("missing {{instance}}"),
			}, false},
			{"Orphan datagrams", "Datagrams of clients that the worker does not serve, by outcome.", "pps", []query{busy("dnp_session_orphans_total", "fate")}, false},
			{"Stalls", "Times that a worker or the forwarder did not run for too long.", "cps", []query{
				rate("dnp_session_stalls_total").named("worker {{instance}}"), rate("dnp_forward_stalls_total").named("forwarder {{instance}}"),
			}, false},
		}},
		processes,
	}},
	{"relay", "dnprelay / relay", "dnp_relay_shards", []row{
		{"Publishing", []panel{
			{"Publishes", "Messages of game servers, and errors.", "cps", []query{rate("dnp_relay_publishes_total"), rate("dnp_relay_publish_errors_total").named("errors {{instance}}")}, false},
			{"Publish delay", "From the arrival of a publish until its batch has left. Points are traces.", "s", quantiles("dnp_relay_publish_delay_seconds"), true},
			{"Waiting in inboxes", "Bytes of bus messages that wait for a worker. A worker drops messages beyond 64 MiB.", "bytes", []query{gauge("dnp_relay_inbox_io_bytes")}, false},
			{"Values", "Changed, and filtered by their precision.", "cps", []query{
				rate("dnp_relay_values_total"), rate("dnp_relay_values_filtered_total").named("filtered {{instance}}"),
			}, false},
			{"Bytes per batch", "", "bytes", []query{ratio(rate("dnp_relay_batch_io_bytes_total"), rate("dnp_relay_batches_total"))}, false},
			{"Busy and lost", "By reason.", "cps", []query{busy("dnp_relay_busy_total", "reason").named("busy {{reason}}"), busy("dnp_relay_bus_lost_total", "reason").named("lost {{reason}}")}, false},
		}},
		{"Authority and durable store", []panel{
			{"Shards held", "", "short", []query{gauge("dnp_relay_shards")}, false},
			{"Shard ownerships that ended", "By reason; released = handed over.", "cps", []query{busy("dnp_relay_ownerships_ended_total", "reason")}, false},
			{"Answers of the store", "By outcome.", "cps", []query{busy("dnp_relay_store_answers_total", "outcome")}, false},
			{"Stored", "States per second.", "cps", []query{rate("dnp_relay_stored_total")}, false},
			{"Unstored", "States that wait to be stored.", "short", []query{gauge("dnp_relay_unstored")}, false},
			{"Age of what is not stored", "A crash of the relay would lose this much.", "s", []query{gauge("dnp_relay_durable_age_seconds")}, false},
		}},
		{"Edges and clients", []panel{
			{"Repairs", "Answered requests of edges.", "cps", []query{rate("dnp_relay_repairs_total")}, false},
			{"Writes of clients", "Accepted and refused.", "cps", []query{rate("dnp_relay_writes_total"), rate("dnp_relay_writes_refused_total").named("refused {{instance}}")}, false},
			{"States and spaces", "", "short", []query{gauge("dnp_relay_states").named("states {{instance}}"), gauge("dnp_relay_spaces").named("spaces {{instance}}")}, false},
			{"States whose time was over", "Removed because no game server said anything about them for their time to live. Many at once: a game server died, or was cut off for longer.", "cps", []query{rate("dnp_relay_states_expired_total")}, false},
			{"Largest spaces", "States of the ten spaces with the most, by rank. /debug/spaces of the relay names them.", "short", []query{gauge("dnp_relay_space_states").named("{{rank}} {{instance}}")}, false},
			{"Busiest spaces", "Bytes of batches for the ten spaces with the most, by rank. /debug/spaces of the relay names them.", "Bps", []query{gauge("dnp_relay_space_rate_bytes_per_second").named("{{rank}} {{instance}}")}, false},
		}},
		processes,
	}},
}

// moved shows durable sessions that change their edge.
var moved = panel{"Sessions that moved", "Handed over, taken over, lost to other edges without a hand-over, and ended as uncertain. Durable sessions only.", "cps", []query{
	rate("dnp_session_handed_total").named("handed over {{instance}}"), rate("dnp_session_adopted_total").named("taken over {{instance}}"),
	rate("dnp_session_lost_total").named("lost {{instance}}"), rate("dnp_session_uncertain_total").named("uncertain {{instance}}"),
}, false}

// sights shows interest by distance.
var sights = row{"Interest by distance", []panel{
	{"Sessions with eyes", "In spaces that have states with an interest.", "short", []query{gauge("dnp_edge_sessions_seeing")}, false},
	{"Looks", "At what is near the eyes of a session: four a second and session, and more where eyes jump.", "cps", []query{rate("dnp_edge_looks_total")}, false},
	{"Changes of bands", "States that came into another band of distance of a session.", "cps", []query{rate("dnp_edge_bands_changes_total")}, false},
	{"Sightings", "States that game servers were told to be in the sight of a client, or no longer: events of interests that ask for them. Waits: news of a client that were too many for 250 ms.", "cps", []query{
		rate("dnp_edge_sightings_total").named("states {{instance}}"), rate("dnp_edge_sightings_waits_total").named("waits {{instance}}"),
	}, false},
	{"Sleeping links", "Links that are sent nothing, because their states are beyond all bands.", "short", []query{gauge("dnp_edge_links_asleep")}, false},
	{"Levels of detail", "Of states, summed over the workers.", "short", []query{gauge("dnp_edge_levels")}, false},
}}

// variants shows clients that speak in Godot's Variants.
var variants = row{"Variants", []panel{
	{"Clients", "That speak Variants, by carrier.", "short", []query{{"sum by (kind) (dnp_variant_peers{" + selector + "})", "{{kind}}"}}, false},
	{"Clients that joined and ended", "Ended by reason; gone = the client or the network ended it.", "cps", []query{
		rate("dnp_variant_joined_total").named("joined {{instance}}"), busy("dnp_variant_ended_total", "reason").named("ended {{reason}}"),
	}, false},
	{"Messages and values", "Messages from and to clients, and values to them.", "cps", []query{
		rateBy("dnp_variant_messages_total", "direction", ""), rate("dnp_variant_values_total").named("values {{instance}}"),
	}, false},
	{"Repeated by UDP", "Messages that clients had not acknowledged.", "cps", []query{rate("dnp_variant_repeats_total")}, false},
	{"Dropped", "Messages and values, and datagrams that belong to no session, by reason.", "cps", []query{
		busy("dnp_variant_drops_total", "reason").named("message {{reason}}"), busy("dnp_variant_datagrams_dropped_total", "reason").named("datagram {{reason}}"),
	}, false},
}}

// viewers shows viewers of Second Life and OpenSimulator.
var viewers = row{"Viewers of Second Life", []panel{
	{"Viewers", "login = logged in, without a circuit yet.", "short", []query{{"sum by (kind) (dnp_lludp_viewers{" + selector + "})", "{{kind}}"}}, false},
	{"Logins", "By outcome; expired = no circuit followed.", "cps", []query{busy("dnp_lludp_logins_total", "outcome")}, false},
	{"Packets", "In and out.", "pps", []query{rateBy("dnp_lludp_packets_total", "direction", "")}, false},
	{"Bytes", "In and out, without headers of IP and UDP.", "Bps", []query{rateBy("dnp_lludp_io_bytes_total", "direction", "")}, false},
	{"Objects", "Sent; repeat = of those, because a viewer did not confirm them in time. Asked = the viewer lacked them.", "cps", []query{
		busy("dnp_lludp_objects_total", "kind"), rate("dnp_lludp_asked_total").named("asked {{instance}}"),
	}, false},
	{"What viewers do", "Values that they set, and messages.", "cps", []query{
		rate("dnp_lludp_writes_total").named("writes {{instance}}"), rate("dnp_lludp_said_total").named("messages {{instance}}"),
	}, false},
	{"Lost", "Packets that viewers did not confirm; message = given up for good.", "pps", []query{busy("dnp_lludp_lost_total", "kind")}, false},
	{"Dropped and ignored", "By reason.", "cps", []query{
		busy("dnp_lludp_drops_total", "reason").named("dropped {{reason}}"), busy("dnp_lludp_ignored_total", "reason").named("ignored {{reason}}"),
	}, false},
}}

// processes shows the resources of every process.
var processes = row{"Process", []panel{
	{"CPU", "Cores used.", "short", []query{rate("process_cpu_seconds_total")}, false},
	{"Memory", "Resident.", "bytes", []query{gauge("process_resident_memory_bytes")}, false},
	{"Goroutines", "", "short", []query{gauge("go_goroutines")}, false},
}}
