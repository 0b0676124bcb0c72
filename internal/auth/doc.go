// Package auth has the rules by which an edge decides who a client is: what a login
// message looks like, which tokens are good, and which were used before.
//
//	token, ok := auth.Token(message)              // the first reliable message
//	claims, reason := keys.Verify(now, token)     // who that is, and what it may
//	reason = replay.Use(now, claims, address)     // once
//
// A token is a JWT (RFC 7519) signed with Ed25519, alg EdDSA and no other:
//
//	{"sub":"client name","jti":"unique","exp":1700000060,"nbf":1700000000,
//	 "dnp":{"space":"arena","groups":["red"],"write":true}}
//
// The package is pure: time, bytes and keys come in, claims or a [Reason] go out. It
// reads no files and keeps no secrets; an edge knows public keys only.
package auth
