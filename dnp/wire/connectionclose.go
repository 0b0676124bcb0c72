package wire

// AppendConnectionClose appends a ConnectionClose, which has no fields:
//
//	command uint8 = 2
func AppendConnectionClose(b []byte) []byte { return append(b, byte(CommandConnectionClose)) }
