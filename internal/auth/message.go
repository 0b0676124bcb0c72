package auth

import "encoding/binary"

// messageMagic begins a login message that is framed.
const messageMagic = "DNPA\x01"

// TokenMax is the largest token in bytes. With its frame it is a message that every
// library sends as one command 4; a login in parts would have to be kept before anybody
// knows whose it is.
const TokenMax = 1350

// Token returns the token in a login message, which it aliases: what follows
//
//	magic  "DNPA"
//	version uint8 = 1
//	size    uint16, little endian
//
// to the last byte, or the whole message if it begins as every JWT does. It is not ok
// for anything else.
func Token(message []byte) (token []byte, ok bool) {
	if len(message) > len(messageMagic)+2 && string(message[:len(messageMagic)]) == messageMagic {
		size := int(binary.LittleEndian.Uint16(message[len(messageMagic):]))
		token = message[len(messageMagic)+2:]
		return token, len(token) == size && size <= TokenMax
	}
	return message, len(message) <= TokenMax && len(message) > 2 && string(message[:2]) == "ey"
}

// AppendMessage appends the login message with a token of at most TokenMax bytes.
func AppendMessage(b []byte, token string) []byte {
	b = append(b, messageMagic...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(token)))
	return append(b, token...)
}
