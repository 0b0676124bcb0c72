package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Code names a reason. Codes never change; INTERFACES.md lists them.
type Code string

// The codes, in the order in which Reasons gives them.
const (
	SpaceUnknown    Code = "space_unknown"
	ClientUnknown   Code = "client_unknown"
	EdgeAway        Code = "edge_away"
	Adopting        Code = "adopting"
	EdgeDraining    Code = "edge_draining"
	HolderAway      Code = "holder_away"
	HolderLoading   Code = "holder_loading"
	HolderUnheard   Code = "holder_unheard"
	ReplicaBehind   Code = "replica_behind"
	Removed         Code = "removed"
	NeverPublished  Code = "never_published"
	OwnState        Code = "own_state"
	NotInAudience   Code = "not_in_audience"
	InAudience      Code = "in_audience"
	InSight         Code = "in_sight"
	OutOfSight      Code = "out_of_sight"
	Declined        Code = "declined"
	NoLinkIDs       Code = "no_link_ids"
	NoRoom          Code = "no_room"
	Unaligned       Code = "unaligned"
	NotOffered      Code = "not_offered"
	OfferQueued     Code = "offer_queued"
	OfferUnanswered Code = "offer_unanswered"
	LinkPresumed    Code = "link_presumed"
	Linked          Code = "linked"
	LevelOfDetail   Code = "level_of_detail"
	WriteUnsettled  Code = "write_unsettled"
	CarrierAway     Code = "carrier_away"
	ClientSilent    Code = "client_silent"
	Loss            Code = "loss"
	PathCrowded     Code = "path_crowded"
	WaitsForBudget  Code = "waits_for_budget"
	ValuesDue       Code = "values_due"
	RefreshDue      Code = "refresh_due"
	Quiet           Code = "quiet"
	UpToDate        Code = "up_to_date"
)

// A Reason is one answer to the question why a client has what it has of a state.
type Reason struct {
	Code   Code   `json:"code"`
	Blocks bool   `json:"blocks"` // it keeps the newest values from the client
	Text   string `json:"text"`   // a sentence for people
}

// Limits beyond which something is worth a reason. The numbers are arbitrary but for the first:
// a holder sends a head every 250 ms.
const (
	holderUnheardAfter = time.Second
	clientSilentAfter  = 20 * time.Second
	lossNotable        = 0.05
	slowedNotable      = 1.2
	quietAfter         = time.Second
)

// Reasons returns every reason why a client has what it has of a state, in order: who serves
// the client, what the edge knows of the space, whether the client may see the state, the link,
// the way, and the values. Reasons that come first explain those behind them. The answer of one
// node has reasons of its own half only.
func Reasons(f *Facts) []Reason {
	var r reasons
	switch {
	case f.Edge == nil:
		r.unserved(f.Holder)
	case f.Edge.Adopting != "":
		r.blocks(Adopting, "Edge %s is taking the session of the client over (%s); it serves the client in a moment.", f.Edge.Edge, f.Edge.Adopting)
	default:
		r.served(f)
	}
	return r.list
}

type reasons struct{ list []Reason }

func (r *reasons) blocks(code Code, format string, args ...any) {
	r.list = append(r.list, Reason{Code: code, Blocks: true, Text: fmt.Sprintf(format, args...)})
}

func (r *reasons) says(code Code, format string, args ...any) {
	r.list = append(r.list, Reason{Code: code, Text: fmt.Sprintf(format, args...)})
}

// unserved says why no edge serves the client.
func (r *reasons) unserved(h *HolderFacts) {
	switch {
	case h == nil:
		r.blocks(HolderAway, "No relay holds the space: none answers.")
		r.blocks(ClientUnknown, "No edge has a session of the client.")
		return
	case h.Loading:
		r.blocks(HolderLoading, "Relay %s holds the space and still loads what was stored.", h.Relay)
	case !h.Known:
		r.blocks(SpaceUnknown, "Nothing was ever published to the space, and no client is in it.")
		return
	}
	if i := slices.IndexFunc(h.Sessions, func(s Session) bool { return s.Edge != "" }); i >= 0 {
		r.blocks(EdgeAway, "Edge %s had the client and does not answer: it is dead, or cut off from NATS.", h.Sessions[i].Edge)
	} else if h.Connected > 0 {
		r.blocks(EdgeAway, "The edge of the client does not answer: it is dead, or cut off from NATS.")
	} else {
		r.blocks(ClientUnknown, "The client is not connected to the space: no edge has a session of it.")
	}
	if h.Known && !h.State && !h.Loading {
		r.blocks(NeverPublished, "The space has no state with this key.")
	}
}

// served says why a client has what it has that an edge serves.
func (r *reasons) served(f *Facts) {
	e := f.Edge
	if e.Draining {
		r.says(EdgeDraining, "Edge %s is leaving and hands its clients to other edges, or closes their sessions.", e.Edge)
	}
	r.holder(f)
	if e.State == nil && !e.Own {
		r.missing(f)
		return
	}
	if e.Own {
		r.says(OwnState, "The client made this state itself; values come from the client.")
	} else if !r.audience(e.State) || !r.sight(e.State.Sight) {
		return
	}
	if !r.link(e) {
		return
	}
	r.level(e.State)
	r.path(&e.Path)
	r.values(e)
}

// holder says whether the edge is equal to the holder.
func (r *reasons) holder(f *Facts) {
	e, h := f.Edge, f.Holder
	unheard := e.Epoch > 0 && time.Duration(e.Unheard) > holderUnheardAfter
	switch {
	case unheard && h == nil:
		r.blocks(HolderAway, "No relay holds the space: edge %s has heard none for %s, so values stand still.", e.Edge, words(e.Unheard))
	case unheard && h.Loading:
		r.blocks(HolderLoading, "Relay %s holds the space and still loads what was stored.", h.Relay)
	case unheard:
		r.blocks(HolderUnheard, "Relay %s holds the space, but edge %s has not heard it for %s.", h.Relay, e.Edge, words(e.Unheard))
	}
	switch {
	case e.Epoch == 0:
		r.blocks(ReplicaBehind, "Edge %s waits for the first states of the space.", e.Edge)
	case !e.Whole:
		r.blocks(ReplicaBehind, "Edge %s missed changes of the space and asks the relay for them (position %d/%d).", e.Edge, e.Epoch, e.Seq)
	}
}

// missing says why the edge has no state with the key.
func (r *reasons) missing(f *Facts) {
	e := f.Edge
	switch {
	case f.Holder != nil && f.Holder.State:
		r.blocks(ReplicaBehind, "Relay %s has the state and edge %s does not have it yet (position %d/%d of %d/%d).",
			f.Holder.Relay, e.Edge, e.Epoch, e.Seq, f.Holder.Epoch, f.Holder.Seq)
	case e.Removed != nil:
		r.blocks(Removed, "The state was removed %s ago.", words(*e.Removed))
	case e.Epoch > 0:
		r.blocks(NeverPublished, "The space has no state with this key, and had none since edge %s began to follow it %s ago.", e.Edge, words(e.Followed))
	}
}

// audience says whether the client may see the state, and reports it.
func (r *reasons) audience(s *StateFacts) bool {
	quoted := func(list []string) string { return strings.Join(list, ", ") }
	switch {
	case s.Included && s.Audience == "all":
		r.says(InAudience, "The audience of the state is everybody.")
	case s.Included && s.Audience == "all_but":
		r.says(InAudience, "The audience of the state is everybody but those that it excludes, which the client is not among.")
	case s.Included && s.Named:
		r.says(InAudience, "The audience of the state names the client.")
	case s.Included:
		r.says(InAudience, "The audience of the state has group %s, in which the client is.", quoted(common(s.Groups, s.Member)))
	case s.Audience == "none":
		r.blocks(NotInAudience, "The audience of the state is empty.")
	case s.Audience == "all_but" && s.Named:
		r.blocks(NotInAudience, "The audience of the state excludes the client by name.")
	case s.Audience == "all_but":
		r.blocks(NotInAudience, "The audience of the state excludes group %s, in which the client is.", quoted(common(s.Groups, s.Member)))
	case len(s.Groups) == 0:
		r.blocks(NotInAudience, "The audience of the state names other clients, and no group.")
	case len(s.Member) == 0:
		r.blocks(NotInAudience, "The audience of the state needs group %s; the client is in no group.", strings.Join(s.Groups, " or "))
	default:
		r.blocks(NotInAudience, "The audience of the state needs group %s; the client is in %s only.", strings.Join(s.Groups, " or "), quoted(s.Member))
	}
	return s.Included
}

// sight says whether the state is near enough, and reports it.
func (r *reasons) sight(s *Sight) bool {
	if s == nil {
		return true
	}
	what := "its interest"
	if s.Interest != "" {
		what = "interest " + s.Interest
	}
	kept := "The client has no link to it."
	if s.Asleep {
		kept = "The link of the client sleeps: the client keeps what it was shown last."
	}
	switch {
	case s.Bands == 0:
		r.blocks(OutOfSight, "The state has an interest that the edge does not know, or that does not fit its values. %s", kept)
	case s.Eyes == 0:
		r.blocks(OutOfSight, "The state is seen from near only (%s), and the client has no eye. %s", what, kept)
	case s.Band == 0 && s.Distance == nil:
		r.blocks(OutOfSight, "The state, or every eye of the client, is nowhere: its place is missing or not finite. %s", kept)
	case s.Band == 0:
		r.blocks(OutOfSight, "The state is %.6g away from the nearest eye of the client, and is seen within %g (%s). %s", *s.Distance, s.Within, what, kept)
	case s.Distance == nil:
		r.says(InSight, "The state was in band %d of %d of %s at the last look, and is nowhere now.", s.Band, s.Bands, what)
	default:
		r.says(InSight, "The state is %.6g away from the nearest eye of the client, in band %d of %d of %s, which ends at %g.", *s.Distance, s.Band, s.Bands, what, s.Within)
	}
	return s.Band > 0
}

func common(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(x string) bool { return !slices.Contains(b, x) })
}

// link says how far the link is, and reports whether values go over it.
func (r *reasons) link(e *EdgeFacts) bool {
	l := e.Link
	if l == nil {
		r.unlinked(e)
		return false
	}
	switch l.Phase {
	case "queued":
		r.blocks(OfferQueued, "The offer of the link waits for its turn behind %d others.", l.Ahead)
		r.path(&e.Path)
	case "offered":
		r.blocks(OfferUnanswered, "The link with LinkId %#x is offered, and the client has not answered.", l.ID)
		r.path(&e.Path)
	case "presumed":
		r.says(LinkPresumed, "The link has LinkId %#x. The client acknowledged the offer and said nothing else, so the edge sends values.", l.ID)
		return true
	default:
		r.says(Linked, "The client has the link, with LinkId %#x, %s.", l.ID, access(l))
		return true
	}
	return false
}

func access(l *LinkFacts) string {
	if l.ReadOnly {
		return "and may not write"
	}
	return "and may write"
}

// unlinked says why there is no link.
func (r *reasons) unlinked(e *EdgeFacts) {
	switch {
	case e.Declined:
		r.blocks(Declined, "The client refused the link. The edge offers the state again when its link message changes.")
	case e.NoRoom && e.Links != nil && e.Links.IDsLeft == 0:
		r.blocks(NoLinkIDs, "The session has used up its LinkIds; the client has to connect again.")
	case e.NoRoom && e.Links != nil:
		r.blocks(NoRoom, "The client has %d links and may have no more; the state waits until one ends.", e.Links.Max)
	case e.NoRoom:
		r.blocks(NoRoom, "The client has as many links as it may; the state waits until one ends.")
	case e.Unaligned:
		r.blocks(Unaligned, "Edge %s took the session over and offers nothing before its copy of the space is complete.", e.Edge)
	default:
		r.blocks(NotOffered, "The edge has not offered the link, although nothing stands against it.")
	}
}

// level says at which level of detail the client sees the state.
func (r *reasons) level(s *StateFacts) {
	if s == nil || s.Level == nil {
		return
	}
	l := s.Level
	text := fmt.Sprintf("The client sees the state in less detail: precision times %g", l.Precision)
	if l.Rate > 0 {
		text += fmt.Sprintf(", at most %g changes a second", l.Rate)
	}
	if l.Lacks > 0 {
		r.blocks(LevelOfDetail, "%s. %s held back, until %s from now at the latest or when the state is quiet for a second.", text, count(l.Lacks, "value is", "values are"), words(l.Next))
		return
	}
	r.says(LevelOfDetail, "%s. Nothing is held back at present.", text)
}

// path says what is wrong with the way to the client.
func (r *reasons) path(p *PathFacts) {
	if p.Away {
		r.blocks(CarrierAway, "The connection of the client takes no data at present: it is gone, or its buffer is full.")
	}
	if time.Duration(p.Heard) > clientSilentAfter {
		r.says(ClientSilent, "The last datagram of the client came %s ago.", words(p.Heard))
	}
	if p.Loss >= lossNotable {
		r.says(Loss, "About %.0f %% of the datagrams from and to the client get lost; values are repeated.", 100*p.Loss)
	}
	if p.Slowed >= slowedNotable {
		r.says(PathCrowded, "Datagrams wait on the path to the client, so the edge sends %d bytes a second at most, %.1f times less than it may.", p.Rate, p.Slowed)
	}
}

// values says whether the client has the newest values.
func (r *reasons) values(e *EdgeFacts) {
	l := e.Link
	if l.Writes > 0 {
		r.says(WriteUnsettled, "The client wrote %s that the relay has not acknowledged; the client is not sent those.", count(l.Writes, "value", "values"))
	}
	switch {
	case l.Waits:
		r.blocks(WaitsForBudget, "The values wait for the budget of the client for %s; the client has version %d of %d.", words(l.Waiting), l.Held, l.Newest)
	case l.Lacks > 0:
		r.blocks(ValuesDue, "%s newer than what the client was sent (version %d of %d); the edge sends them at its next flush.", count(l.Lacks, "value is", "values are"), l.Held, l.Newest)
	}
	if l.Refresh != nil {
		r.says(RefreshDue, "In case that datagrams were lost, the edge repeats the last changes in %s.", words(*l.Refresh))
	}
	if l.Quiet != nil && time.Duration(*l.Quiet) >= quietAfter {
		r.says(Quiet, "The state has not changed for %s.", words(*l.Quiet))
	}
	if !slices.ContainsFunc(r.list, func(x Reason) bool { return x.Blocks }) {
		text := fmt.Sprintf("The client was sent everything: version %d of %d", l.Held, l.Newest)
		if l.Scrub != nil {
			text += ", and gets all values once more in about " + words(*l.Scrub)
		}
		r.says(UpToDate, "%s.", text)
	}
}

// count returns a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// words returns a time with about two digits.
func words(m Millis) string {
	switch d := time.Duration(m); {
	case d < time.Millisecond:
		return "less than 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f h", time.Duration(m).Hours())
}
