package sessionlog

import "strconv"

// An ActionKind is what a Session wants, or says.
type ActionKind uint8

const (
	// ActionAppend asks the log to append Write, ActionRead to read Log. One of them is
	// under way at a time, and each must be answered by one call of Answer.
	ActionAppend ActionKind = iota + 1
	ActionRead

	// ActionOpened says that the session of a new client exists.
	ActionOpened

	// ActionFound says that there is a session to adopt, of the client Info, which Node
	// owns; nobody if it was handed over. Call Claim when the states that it is linked to
	// are there.
	ActionFound

	// ActionAdopted says that this edge owns the session. Call Restore at once.
	ActionAdopted

	// ActionDeliver hands over a message of the client, in order, possibly again after
	// an adoption: consumers know it by Message.Number and see from Message.Previous
	// that none is missing. Call Delivered when it cannot get lost any more.
	ActionDeliver

	// ActionElsewhere says that another edge owns the session: Node, if it is known, in
	// Epoch. The connection of a client that wanted to open one is gone without a word.
	ActionElsewhere

	// ActionGone says that there is nothing to adopt.
	ActionGone

	// ActionLost says that another edge has adopted the session. The connection is
	// gone without a word to the client.
	ActionLost

	// ActionUncertain says that the history of the session cannot be established, so
	// that it ends: Reason, and the numbers that the log knows. If there is no
	// connection, tell the client by a ConnectionClose.
	ActionUncertain

	// ActionEnded says that the session is over and the log says so.
	ActionEnded

	// ActionHanded says that the session belongs to whoever adopts it next.
	ActionHanded
)

var actionNames = [...]string{
	ActionAppend: "append", ActionRead: "read", ActionOpened: "opened", ActionFound: "found", ActionAdopted: "adopted",
	ActionDeliver: "deliver", ActionElsewhere: "elsewhere", ActionGone: "gone", ActionLost: "lost", ActionUncertain: "uncertain",
	ActionEnded: "ended", ActionHanded: "handed",
}

func (k ActionKind) String() string {
	if int(k) < len(actionNames) && actionNames[k] != "" {
		return actionNames[k]
	}
	return "action " + strconv.Itoa(int(k))
}

// An Action is one word of a Session.
type Action struct {
	Kind    ActionKind
	Log     string // ActionRead
	Write   Write  // ActionAppend
	Info    Info   // ActionFound; ActionUncertain, if it is known
	Message Message
	Node    string
	Epoch   uint64
	Reason  string

	// ActionUncertain: the next number that the log expects of the client, and the
	// next one of ours.
	Received, Sent uint64
}
