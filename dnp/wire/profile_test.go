package wire

import "testing"

func TestNumbered(t *testing.T) {
	for _, c := range []struct {
		datagram []byte
		cmd      Command
		seq      Seq
		ok       bool
	}{
		{[]byte{4, 1, 2, 'x'}, CommandReliableMessage, 0x0201, true},
		{[]byte{6, 0xff, 0, 0}, CommandReliableAck, 0xff, true},
		{[]byte{10, 7, 0}, CommandReliableMessageLong, 7, true},
		{[]byte{4, 1}, CommandReliableMessage, 1, false},
		{[]byte{3, 1, 2}, CommandMessage, 0, false},
		{[]byte{7, 0, 0x80}, CommandLinkUp, 0, false},
	} {
		cmd, seq, ok := Numbered(c.datagram)
		if cmd != c.cmd || ok != c.ok || ok && seq != c.seq {
			t.Errorf("% x: %v %d %v, want %v %d %v", c.datagram, cmd, seq, ok, c.cmd, c.seq, c.ok)
		}
	}
	if _, _, ok := Numbered(nil); ok {
		t.Error("nothing has a number")
	}
}
