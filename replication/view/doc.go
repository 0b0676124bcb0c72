// Package view encodes and decodes the records in which states are replicated.
//
// A state is cut into views of at most 128 values. A batch is a [Header] followed by records. A
// short number, its RefId, addresses each record to a view:
//
//	batch  = header record*
//	record = size VLQ, ref uint16, [entity uint64 if ref is 0xFFFF], message uint8, data
//
// The records are those of the views protocol: a RefIdAssign binds a RefId, a keyframe has all
// values of a view, an update some of them, a checksum is the CRC-32 of the keyframe, and a remove
// ends the state. Describe is an addition and says what the state is; package replication defines
// its content.
//
// Everything is little endian except the size. Writers use the shortest form of a size, readers
// accept every form. Readers alias their input, allocate nothing and report malformed input with a
// static error.
//
// # The views document
//
// The records follow the published description of views, updates and keyframes of a game server.
// Where it is silent or wrong, the traffic of that game decides. This table has every section of it.
//
//	document                  here
//	------------------------  ---------------------------------------------------------------------
//	View                      a view of a state: [Range], [Split]. A state has as many as its values
//	                          need; there, an entity has views of different kinds, and their code
//	                          is the low byte of the EntityId. Here that byte counts the views.
//	Controller                no record of its own. A state says who may write it (Access); clients
//	                          write over DNP, and the edge asks the holder. Deliberate: in the
//	                          document only the owner has the controller, while here every edge has
//	                          every state of a space, and decides for each client what it may see.
//	commands about an entity  commands (package dnp/command): a client that may write a state, or owns
//	                          it, asks the game server to do something with it, and gets one answer.
//	                          They travel in reliable messages, not in records of a view.
//	ShadowField               a value of one of the 38 types of DNP: [Field]. The document knows
//	                          neither types nor names on the wire, both sides are compiled with
//	                          them. Here a Describe tells both, because no node knows any game.
//	struct fields             a data value with fields, which are the names and types of its
//	                          components (package replication, StructField). The bytes are those of
//	                          the components one after another, as in the document. Only the holder
//	                          and clients know the components; updates carry the whole struct, as
//	                          there.
//	nullable field            a nullable value: [Field].Nullable. DNP has no null, so clients get a
//	                          substitute.
//	ShadowFieldIndex          the index of a value in its view, 0 to 127, in the order of the put
//	up to 128 fields          [FieldsMax]; a state with more values has more views. A view also ends
//	                          at 32,000 bytes, the most that the size of a record can say.
//	index -1 to -128          index | 0x80 sets a value to null, so that 0x80 means value 0. The
//	                          document's example, -20 for value 20, is wrong: negation cannot
//	                          express value 0. The traffic has index - 128, the same byte.
//	keyframe                  [Keyframe], message 3, of each view of a new state, and in answers to
//	                          repair requests: the values in the order of their indices, without
//	                          the indices, and nothing for a null
//	keyframe with GUID        none, message 4 is not used: nothing here belongs to an account
//	keyframe limited to one   the holder answers the first repair request of a requester at once,
//	entity in 3 s             and what a requester asks beyond a budget at the end of 3 s, in one
//	                          answer. A new state is never delayed.
//	bitfield                  [AppendKeyframe]: one bit per nullable value in order, lowest bit
//	                          first, 1 is null, unused bits are 0. No nullable value, no bitfield.
//	                          Readers ignore unused bits, because one emulator writes them as 1.
//	update                    [AppendUpdateValue], [AppendUpdateNull], [ReadUpdate]: any number of
//	                          values in any order. Writers send each value once and in order. A
//	                          reader takes an update as a whole or not at all.
//	remove                    [Remove], message 6, of view 0: the state ends with all its views.
//	                          Message 5, with GUID, is not used.
//	checksum                  [Checksum], message 2: CRC-32 (IEEE) of the keyframe, uint32. The
//	                          document asks whether the bitfield counts: it does. Every view is sent
//	                          a checksum when it goes quiet, and otherwise every 5 s; there it comes
//	                          every few seconds over a lossy channel. Here a batch carries it, and
//	                          batches are numbered, so it is never compared with values of another
//	                          moment, and a difference is a fault and not a late datagram.
//	RefIdAssign               [RefIDAssign], message 9, uint16. 0 and 0xFFFF are no RefIds. There a
//	                          connection has RefIds of its own; here a space has them, because all
//	                          edges read the same batches. A new epoch forgets all.
//	routed messages           the records of a batch: [Records], [AppendSize]. Size is a VLQ of one
//	                          byte below 0x80, otherwise of two, the high bits first. The traffic
//	                          has small sizes in two bytes, so readers accept them.
//	RefId 0xFFFF              [NoRef]: an EntityId follows
//	direct messages           none: every record is routed. A stored state has records that are
//	                          addressed by EntityId.
//	message ids from 16 on    there commands of a view; here those of the additions [Describe],
//	                          [DescribePart] and [StoredAt]
//	keyframe request          a repair request (package replication): the lists of EntityIds with
//	                          checksums, and of RefIds, are those of the request for states. A
//	                          replica that missed a batch asks for batches instead.
//
// What the document leaves to its transport is here in the [Header]: epoch, number and predecessor
// of the batch, by which a replica notices what it missed.
package view
