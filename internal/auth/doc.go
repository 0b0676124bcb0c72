// Package auth has the rules by which an edge identifies clients: the form of a login
// message, which tokens are valid, and which were used before.
//
//	token, ok := auth.Token(message)              // of the first reliable message
//	claims, reason := keys.Verify(now, token)     // the client and its rights
//	reason = replay.Use(now, claims, address)     // once
//
// A token is a JWT (RFC 7519) signed with Ed25519, alg EdDSA and no other:
//
//	{"sub":"client name","jti":"unique","exp":1700000060,"nbf":1700000000,
//	 "dnp":{"space":"arena","groups":["red"],"write":true}}
//
// The package is pure: it takes time, bytes and keys, and returns claims or a [Reason]. It
// reads no files and keeps no secrets; an edge knows public keys only.
package auth
