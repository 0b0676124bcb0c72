package viewer

import (
	"time"

	"github.com/dnprelay/dnprelay/lludp"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// genuine reports whether a datagram may be the viewer's. It is asked before the circuit remembers the number of the packet: somebody
// who forges the address of the viewer does not know its session, and must not take its numbers.
func (v *Viewer) genuine(datagram []byte) bool {
	if v.scratch == nil {
		v.scratch = new(wire.Scratch)
	}
	m, err := wire.Parse(datagram, v.scratch)
	if err != nil {
		return v.circuit != nil // which counts the error
	}
	switch {
	case m.Number == wire.UseCircuitCode:
		o, err := wire.ParseOpening(m.Body)
		if err != nil || o != v.cfg.Opening {
			v.drop(DropForged)
			return false
		}
		return true
	case v.circuit == nil:
		v.drop(DropStage)
		return false
	case m.Number.Trusted() && m.Number != wire.OpenCircuit:
		v.drop(DropTrusted)
		return false
	case identified(m.Number):
		id, _, err := identify(m.Body)
		if err != nil || id.agent != v.cfg.Opening.Agent || id.session != v.cfg.Opening.Session {
			v.drop(DropForged)
			return false
		}
	}
	return true
}

// identified reports whether the body of a message that is understood begins with an identity.
func identified(n wire.Number) bool {
	switch n {
	case wire.CompleteAgentMovement, regionHandshakeReply, agentThrottle, requestRegionInfo, agentWearablesRequest, agentDataRequest,
		mapNameRequest, wire.AgentUpdate, chatFromViewer, multipleObjectUpdate, requestMultiple, wire.GenericMessage, logoutRequest:
		return true
	}
	return false
}

// message takes a message of the viewer that the circuit passed up.
func (v *Viewer) message(now time.Time, p wire.Packet) {
	if v.stage >= leaving {
		v.drop(DropStage)
		return
	}
	r := reader{p: p.Body}
	if identified(p.Number) {
		_, r, _ = identify(p.Body) // genuine has checked it
	}
	if err := v.understand(now, p.Number, r); err != nil {
		v.drop(DropMalformed)
	}
}

func (v *Viewer) understand(now time.Time, n wire.Number, r reader) error {
	o := v.cfg.Opening
	switch n {
	case wire.UseCircuitCode: // the circuit has acknowledged it
	case wire.CompleteAgentMovement:
		return v.arrive(now, r)
	case regionHandshakeReply:
		if v.stage == opened {
			v.stage = shown
			v.scene.everything()
		}
	case agentThrottle:
		generation, bits, err := parseThrottle(r)
		if err == nil && generation >= v.throttled {
			v.throttled = generation
			v.pace.throttle(bits)
		}
		return err
	case requestRegionInfo:
		v.post(regionInfo, appendRegionInfo(nil, o.Agent, o.Session, v.cfg.Region), false)
	case agentWearablesRequest:
		v.post(agentWearablesUpdate, appendWearables(nil, o.Agent, o.Session), false)
	case agentDataRequest:
		v.post(agentDataUpdate, appendAgentData(nil, o.Agent, v.cfg.First, v.cfg.Last), false)
	case mapNameRequest:
		flags, _, err := parseMapName(r)
		if err == nil { // there is no other region
			v.post(mapBlockReply, appendMapBlock(nil, o.Agent, flags, v.cfg.Region), false)
		}
		return err
	case uuidNameRequest:
		return v.names(r)
	case logoutRequest:
		v.logout(now)
	default:
		return v.play(n, r)
	}
	return nil
}

// play takes a message about what there is in the region.
func (v *Viewer) play(n wire.Number, r reader) error {
	switch {
	case v.stage != shown:
		v.drop(DropStage)
		return nil
	case n == wire.AgentUpdate:
		return v.act(r)
	case n == chatFromViewer:
		return v.chat(r)
	case n == multipleObjectUpdate:
		return v.write(r)
	case n == requestMultiple:
		return v.repair(r)
	case n == wire.GenericMessage:
		return v.generic(r)
	}
	v.drop(DropUnknown)
	return nil
}

// arrive answers CompleteAgentMovement.
func (v *Viewer) arrive(now time.Time, r reader) error {
	code, err := parseMovement(r)
	if err != nil {
		return err
	}
	o := v.cfg.Opening
	if code != o.Code {
		v.drop(DropForged)
		return nil
	}
	v.arrived = true
	v.post(agentMovementComplete, appendMovementComplete(nil, o.Agent, o.Session, uint32(now.Unix())), false)
	v.post(wire.RegionHandshake, appendRegionHandshake(nil, v.cfg.Region), false)
	return nil
}

// namesIn is how many names fit into a packet.
const namesIn = 7

// names answers UUIDNameRequest. Every id gets an answer, because viewers wait for it.
func (v *Viewer) names(r reader) error {
	ids, err := parseNames(r)
	if err != nil {
		return err
	}
	for len(ids) > 0 {
		n := min(len(ids), namesIn)
		var list []name
		for _, id := range ids[:n] {
			list = append(list, v.name(id))
		}
		v.post(uuidNameReply, appendNames(nil, list), false)
		ids = ids[n:]
	}
	return nil
}

func (v *Viewer) name(id wire.UUID) name {
	if id == v.cfg.Opening.Agent {
		return name{id, v.cfg.First, v.cfg.Last}
	}
	for _, p := range v.town.players {
		if p.full == id {
			return name{id, clip(p.state.Key(), nameMax), ""}
		}
	}
	return name{id, "?", ""}
}

// nameMax is the most bytes of a name in an answer.
const nameMax = 100

// logout answers LogoutRequest, and ends the circuit when that has arrived.
func (v *Viewer) logout(now time.Time) {
	v.farewell(now, logoutReply, appendLogoutReply(nil, v.cfg.Opening.Agent, v.cfg.Opening.Session))
	v.call(Call{Kind: Leave})
}

// Kick tells the viewer that its session ends, and why.
func (v *Viewer) Kick(now time.Time, why string, out lludp.Sender) {
	switch {
	case v.stage >= leaving:
	case v.circuit == nil:
		v.stage = over
	default:
		v.farewell(now, kickUser, appendKick(nil, v.cfg.Opening.Agent, v.cfg.Opening.Session, clip(why, textMax)))
		v.flush(now, out)
	}
}

// farewell sends a last message.
func (v *Viewer) farewell(now time.Time, n wire.Number, body []byte) {
	v.stage, v.leaveAt, v.outbox = leaving, now.Add(leaveTime), outbox{}
	v.post(n, body, false)
}
