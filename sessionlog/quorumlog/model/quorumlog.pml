/*
 * The rules of package quorumlog: see ../DESIGN.md, and README.md for what this model leaves out.
 *
 * Three copies have records. Attempts lead the log and write to it, all at the same time. Each step below is
 * one request that a copy carries out, or one decision of an edge. A step may come at any time later, or never:
 * so every copy may be away, every request late and every edge dead, at any time. An answer that is lost is the
 * same as an edge that takes no further step with it.
 *
 *   ATTEMPTS  attempts to lead, default 3
 *   WRITERS   how many of them, the first ones, write an entry behind their state, default all but the last one
 *   EMPTY     the log is empty in the beginning. Otherwise attempt 0 leads all copies and has written entry 1
 *   APART     an attempt reads the copies at different times, and not all at once
 *   READER    an edge reads the log once
 *   FORGET    number of records that copies forget, each while the other two copies have the same
 */
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#ifndef WRITERS
#define WRITERS (ATTEMPTS - 1)
#endif
#ifndef FORGET
#define FORGET 0
#endif
#define ENTRIES (2 * ATTEMPTS + 1)
#define OWN(a, n) (2 * (a) + 1 + (n)) /* the entries of an attempt: one with its state, one behind it */

/* What one copy has. */
typedef Copy {
	byte next; /* sequence of its newest record, ever */
	byte tail; /* of its last record */
	byte top;  /* the highest ballot */
	byte data; /* the ballot of its history; 0 for none */
	byte end;  /* the last entry of its history; 0 for none */
	bit torn;  /* its records do not follow each other */
#if FORGET
	byte tail0, top0, data0, end0; /* before the last record */
#endif
}
Copy copy[3];

byte parent[ENTRIES]; /* the entry that the writer of an entry expected before it */
byte head;            /* the newest entry of which an edge was told that it is stored */
byte used;            /* ballots, as bits */
byte begun;           /* attempts */
byte forgot;
byte order;            /* copies that attempt 0 has asked. It asks 0, 1 and 2 in turn: the names of copies mean nothing */

/* The states of an attempt. */
#define IDLE 0
#define READS 1 /* it reads copies, and has no ballot yet */
#define LEADS 2 /* it writes LEAD */
#define STATE 3 /* it leads, and its state is on its way */
#define NEXT 4  /* its state is stored, and an entry behind it is on its way */
#define DONE 5 /* its writer was told of both entries */
#define OVER 6 /* given up; what it sent may still arrive */

typedef Attempt {
	byte phase;
	byte ballot;
	byte expect;  /* the last entry that its writer knows */
	byte end;     /* the last entry of its state */
	byte since;   /* head when it began */
	bit reads;    /* it writes back what a read found, and adds nothing */
	byte tail[3]; /* of the copies, as far as it knows; 0 for unknown */
	byte data[3];
	byte last[3];
	byte has[3];  /* what a copy has of it: 0 nothing, 1 LEAD, 2 the state, 3 the entry behind it */
}
Attempt att[ATTEMPTS];

hidden byte z, best, bestd, n; /* of one step */

/* Situations that the searches have to reach, so that they mean something: REACH=n fails where n is reached. */
#ifdef REACH
#define REACHED(n) assert(REACH != n)
#else
#define REACHED(n) skip
#endif

/* within(x, y): x is y or comes before it. */
#define within(x, y) \
	z = y; \
	do \
	:: z != x && z != 0 -> z = parent[z] \
	:: else -> break \
	od

/* told(x): an edge is told that the log goes up to x. All such entries are one chain. */
#define told(x) \
	within(head, x); \
	if \
	:: z == head -> head = x \
	:: else -> within(x, head); assert(z == x) \
	fi

/* remember(c): what copy c has before its next record. */
#define remember(c) \
	copy[c].tail0 = copy[c].tail; copy[c].top0 = copy[c].top; copy[c].data0 = copy[c].data; copy[c].end0 = copy[c].end
#if !FORGET
#undef remember
#define remember(c) skip
#endif
/* write(c): copy c gets a record. */
#define write(c) \
	remember(c); copy[c].next++; copy[c].tail = copy[c].next

#ifdef NO_CAS
#define follows(c, a) true
#else
#define follows(c, a) (copy[c].tail == att[a].tail[c])
#endif

#define known(a, c) (att[a].tail[c] != 0 || att[a].has[c] != 0)
#define count3(p) (p(0) + p(1) + p(2))

/* better(d, e): history e of ballot d counts more than best, which has ballot bestd. */
#ifdef LONGEST
#define better(d, e) (depth(e) > depth(best))
#define depth(e) ((e) == 0 -> 0 : (parent[e] == 0 -> 1 : (parent[parent[e]] == 0 -> 2 : (parent[parent[parent[e]]] == 0 -> 3 : 4))))
#else
#ifdef SHORTEST
#define better(d, e) ((d) > bestd || (d) == bestd && (e) != best && best != 0 && parent[best] == (e))
#else
#define better(d, e) ((d) > bestd || (d) == bestd && parent[e] == best)
#endif
#endif

/* history(a): best is the end of the history that counts of what attempt a read. */
#define consider(a, c) \
	if \
	:: known(a, c) && att[a].last[c] != 0 && (best == 0 || better(att[a].data[c], att[a].last[c])) -> bestd = att[a].data[c]; best = att[a].last[c] \
	:: else \
	fi
#ifdef FIRST_HISTORY
#define history(a) \
	best = 0; bestd = 0; \
	if \
	:: known(a, 0) -> consider(a, 0) \
	:: else -> consider(a, 1) \
	fi
#else
#define history(a) best = 0; bestd = 0; consider(a, 0); consider(a, 1); consider(a, 2)
#endif

/* look(a, c): attempt a reads copy c. */
#define look(a, c) \
	att[a].tail[c] = copy[c].tail; att[a].data[c] = copy[c].data; att[a].last[c] = copy[c].end
#ifdef OLD_CONTENT
#define lookAgain(a, c) att[a].tail[c] = copy[c].tail
#else
#define lookAgain(a, c) look(a, c)
#endif

/* What an attempt does not need any more becomes 0, so that states become equal. */
#define settle(a, c) att[a].data[c] = 0; att[a].last[c] = 0

#ifdef ONE_LEADS
#define LEADQUORUM 1
#else
#define LEADQUORUM 2
#endif
#ifdef ONE_STORES
#define STOREQUORUM 1
#else
#define STOREQUORUM 2
#endif

#define leads(a) ((att[a].has[0] >= 1) + (att[a].has[1] >= 1) + (att[a].has[2] >= 1))
#define stores(a, n) ((att[a].has[0] >= n) + (att[a].has[1] >= n) + (att[a].has[2] >= n))

#define giveUp(a) \
	att[a].phase = OVER; att[a].expect = 0; att[a].since = 0; rest(a, 0); rest(a, 1); rest(a, 2)
#define rest(a, c) \
	settle(a, c); \
	if \
	:: att[a].has[c] > 0 || !known(a, c) -> att[a].has[c] = 9; att[a].tail[c] = 0 \
	:: else \
	fi

/* free(b): no attempt has ballot b. */
#ifdef SAME_BALLOT
#define free(b) true
#else
#define free(b) ((used & (1 << (b))) == 0)
#endif
#ifdef LOW_BALLOT
#define above(c) true
#else
#define above(c) (!known(a, c) || copy0[c] < b)
#endif

#ifdef LEAD_IS_DATA
#define leadData(c, a) copy[c].data = att[a].ballot
#else
#define leadData(c, a) skip
#endif

/* begin(a): two copies have LEAD. The request is carried out over what they had. */
#ifdef ANY_HISTORY
#define fits(a) true
#else
#define fits(a) (best == att[a].expect)
#endif
#define begin(a) \
	history(a); \
	if \
	:: !fits(a) -> giveUp(a); REACHED(1) \
	:: fits(a) && att[a].reads && best == 0 -> giveUp(a) \
	:: else -> \
		att[a].phase = STATE; \
		if \
		:: att[a].reads -> att[a].end = best \
		:: else -> att[a].end = OWN(a, 0); parent[OWN(a, 0)] = att[a].expect \
		fi; \
		if \
		:: best != 0 && best != head && (copy[0].end == best) + (copy[1].end == best) + (copy[2].end == best) == 1 -> REACHED(2) \
		:: else \
		fi; \
		SERVE(a) \
	fi; \
	settle(a, 0); settle(a, 1); settle(a, 2)
#ifdef NO_STATE
#define SERVE(a) told(att[a].end)
#else
#define SERVE(a) skip
#endif

#define settleLate(a, c) \
	if \
	:: att[a].phase != LEADS -> settle(a, c) \
	:: else \
	fi

/* lead(a, c): copy c carries LEAD out, or attempt a reads again what it has. OWNLEAD: it takes a record for its own. */
#ifdef IGNORE_HIGHER
#define higher(c, a) false
#else
#define higher(c, a) (copy[c].top >= att[a].ballot)
#endif
#ifdef SAME_BALLOT
#define OWNLEAD(c, a) (att[a].phase != OVER && copy[c].top == att[a].ballot && copy[c].data != copy[c].top)
#else
#define OWNLEAD(c, a) false
#endif
#define joined(a, c) \
	if \
	:: att[a].phase == LEADS && leads(a) >= LEADQUORUM -> begin(a) \
	:: att[a].phase == OVER -> att[a].has[c] = 9; att[a].tail[c] = 0 \
	:: else -> settleLate(a, c) \
	fi
#define lead(a, c) \
	if \
	:: follows(c, a) -> \
		write(c); \
		copy[c].top = (att[a].ballot > copy[c].top -> att[a].ballot : copy[c].top); leadData(c, a); \
		att[a].tail[c] = copy[c].tail; att[a].has[c] = 1; \
		joined(a, c) \
	:: else -> \
		if \
		:: att[a].phase == OVER -> att[a].has[c] = 9; att[a].tail[c] = 0 \
		:: OWNLEAD(c, a) -> att[a].tail[c] = copy[c].tail; att[a].has[c] = 1; joined(a, c) \
		:: att[a].phase == LEADS && higher(c, a) -> giveUp(a) \
		:: att[a].phase != OVER && att[a].phase != LEADS && higher(c, a) -> att[a].has[c] = 9; att[a].tail[c] = 0 \
		:: else -> lookAgain(a, c); settleLate(a, c); REACHED(3) \
		fi \
	fi

/* oneMeaning(c): a ballot and a number have one meaning. Copies that have entries of one ballot have one history,
 * of which one copy may have more. */
#define alike(c, d) (copy[c].data != copy[d].data || copy[c].data == 0 || copy[c].end == copy[d].end || parent[copy[c].end] == copy[d].end || parent[copy[d].end] == copy[c].end)
#define oneMeaning(c) assert(alike(c, 0) && alike(c, 1) && alike(c, 2))

/* push(a, c): copy c carries out the next record of the lead of attempt a. A state replaces what the copy has. */
#ifdef COMES_BACK
#define refused(a, c) att[a].tail[c] = copy[c].tail
#else
#define refused(a, c) \
	att[a].has[c] = 9; att[a].tail[c] = 0; REACHED(4); \
	if \
	:: (att[a].has[0] == 9) + (att[a].has[1] == 9) + (att[a].has[2] == 9) >= 2 -> REACHED(9) \
	:: else \
	fi
#endif
#define push(a, c) \
	if \
	:: !follows(c, a) -> refused(a, c) \
	:: follows(c, a) && att[a].has[c] == 1 -> \
		write(c); \
		copy[c].top = att[a].ballot; copy[c].data = att[a].ballot; copy[c].end = att[a].end; copy[c].torn = 0; oneMeaning(c); \
		att[a].tail[c] = copy[c].tail; att[a].has[c] = 2 \
	:: else -> \
		write(c); \
		if \
		:: copy[c].data == att[a].ballot && copy[c].top == att[a].ballot && copy[c].end == att[a].end -> copy[c].end = OWN(a, 1); oneMeaning(c) \
		:: else -> copy[c].torn = 1 \
		fi; \
		att[a].tail[c] = 0; att[a].has[c] = 3 \
	fi

/* answer(a): two copies have the state of attempt a, and its writer is told. It writes one more entry. */
#define answer(a) \
	within(att[a].since, att[a].end); assert(z == att[a].since); \
	if \
	:: begun > a + 1 && !att[a].reads && head != att[a].expect -> REACHED(5) \
	:: else \
	fi; \
	told(att[a].end); \
	att[a].phase = (a < WRITERS -> NEXT : DONE); att[a].since = 0; att[a].expect = 0; parent[OWN(a, 1)] = att[a].end
#define answerNext(a) \
	if \
	:: (copy[0].top > att[a].ballot) + (copy[1].top > att[a].ballot) + (copy[2].top > att[a].ballot) > 0 -> REACHED(6) \
	:: else \
	fi; \
	told(OWN(a, 1)); att[a].phase = DONE

#define pushable(a, c) (att[a].has[c] == 1 && att[a].phase >= STATE && att[a].phase <= DONE || att[a].has[c] == 2 && a < WRITERS && att[a].phase >= NEXT && att[a].phase <= DONE)
#define turn(a, c) (a != 0 || c <= order)
#define asked(a, c) \
	if \
	:: a == 0 && c == order -> order++ \
	:: else \
	fi
#define member(a, c, n) (att[a].has[c] >= n && att[a].has[c] < 9)
#define members(a, n) (member(a, 0, n) + member(a, 1, n) + member(a, 2, n))

proctype attempt(byte a) {
	byte b, i;
	byte copy0[3]; /* the highest ballots that it read */
	if
	:: a == 0 || begun >= a -> skip
	fi;
	d_step {
		if
		:: att[a].phase == IDLE -> att[a].phase = READS; att[a].since = head; begun++
		:: else
		fi
	}
	if
	:: att[a].phase == READS ->
		if
		:: att[a].reads = 0
		:: a == ATTEMPTS - 1 -> att[a].reads = 1
		fi;
#ifdef APART
		do
		:: d_step { !known(a, 0) && !copy[0].torn -> look(a, 0); copy0[0] = copy[0].top }
		:: d_step { !known(a, 1) && !copy[1].torn -> look(a, 1); copy0[1] = copy[1].top }
		:: d_step { !known(a, 2) && !copy[2].torn -> look(a, 2); copy0[2] = copy[2].top }
		:: known(a, 0) + known(a, 1) + known(a, 2) >= 2 -> break
		od;
#endif
		atomic {
#ifndef APART
			known(a, 0) + known(a, 1) + known(a, 2) == 0;
			i = 0;
			do
			:: i < 3 && !copy[i].torn -> look(a, i); copy0[i] = copy[i].top; i++
			:: i < 3 -> i++
			:: else -> break
			od;
			known(a, 0) + known(a, 1) + known(a, 2) >= 2;
#endif
			b = 1;
			do
			:: b < ATTEMPTS -> b++
			:: free(b) && above(0) && above(1) && above(2) -> break
			od;
			used = used | (1 << b);
			att[a].ballot = b;
			history(a);
			att[a].expect = best;
			b = 0; i = 0; copy0[0] = 0; copy0[1] = 0; copy0[2] = 0;
			att[a].phase = LEADS
		}
	:: else
	fi;
	do
	/* a copy that was not read yet */
	:: d_step { !known(a, 0) && att[a].phase >= LEADS && att[a].phase < DONE && att[a].has[0] == 0 && !copy[0].torn && !higher(0, a) -> look(a, 0); settleLate(a, 0) }
	:: d_step { !known(a, 1) && att[a].phase >= LEADS && att[a].phase < DONE && att[a].has[1] == 0 && !copy[1].torn && !higher(1, a) -> look(a, 1); settleLate(a, 1) }
	:: d_step { !known(a, 2) && att[a].phase >= LEADS && att[a].phase < DONE && att[a].has[2] == 0 && !copy[2].torn && !higher(2, a) -> look(a, 2); settleLate(a, 2) }
	:: d_step { known(a, 0) && att[a].has[0] == 0 && att[a].phase >= LEADS && turn(a, 0) -> asked(a, 0); lead(a, 0) }
	:: d_step { known(a, 1) && att[a].has[1] == 0 && att[a].phase >= LEADS && turn(a, 1) -> asked(a, 1); lead(a, 1) }
	:: d_step { known(a, 2) && att[a].has[2] == 0 && att[a].phase >= LEADS && turn(a, 2) -> asked(a, 2); lead(a, 2) }
	:: d_step { pushable(a, 0) && turn(a, 0) -> asked(a, 0); push(a, 0) }
	:: d_step { pushable(a, 1) && turn(a, 1) -> asked(a, 1); push(a, 1) }
	:: d_step { pushable(a, 2) && turn(a, 2) -> asked(a, 2); push(a, 2) }
	:: d_step { att[a].phase == STATE && members(a, 2) >= STOREQUORUM -> answer(a) }
	:: d_step { att[a].phase == NEXT && members(a, 3) >= STOREQUORUM -> answerNext(a) }
	od
}

#ifdef READER
#define of(c) \
	if \
	:: seen[c] && last[c] != 0 && (best == 0 || better(data[c], last[c])) -> bestd = data[c]; best = last[c] \
	:: else \
	fi
#ifdef SETTLED_ANY_BALLOT
#define same(c) (seen[c] && last[c] == best)
#else
#define same(c) (seen[c] && last[c] == best && data[c] == bestd)
#endif
#ifdef UNSETTLED
#define settledBy(n) true
#else
#define settledBy(n) (n >= 2)
#endif

proctype reader() {
	byte since;
	bit seen[3];
	byte data[3], last[3];
	since = head;
	do
	:: d_step { !seen[0] && !copy[0].torn -> seen[0] = 1; data[0] = copy[0].data; last[0] = copy[0].end }
	:: d_step { !seen[1] && !copy[1].torn -> seen[1] = 1; data[1] = copy[1].data; last[1] = copy[1].end }
	:: d_step { !seen[2] && !copy[2].torn -> seen[2] = 1; data[2] = copy[2].data; last[2] = copy[2].end }
	:: d_step { seen[0] + seen[1] + seen[2] >= 2 ->
		best = 0; bestd = 0;
		of(0); of(1); of(2);
		n = same(0) + same(1) + same(2);
		if
		:: settledBy(n) && (best != 0 || seen[0] + seen[1] + seen[2] == 3) ->
			within(since, best); assert(z == since);
			told(best);
			if
			:: head != best -> REACHED(7)
			:: else
			fi
		:: else
		fi }
		break
	od
}
#endif

#if FORGET
#ifdef FORGET_ANY
#define whole(c, d) true
#else
#define whole(c, d) (copy[c].top == copy[d].top && copy[c].data == copy[d].data && copy[c].end == copy[d].end)
#endif
#ifdef FORGET_SOON
#define tooLate(c) skip
#else
/* A server that lost records is away for longer than a request takes: all requests from before are given up. */
#define underWay(a) (att[a].phase == LEADS || att[a].phase == STATE || att[a].phase == NEXT && members(a, 3) + (att[a].has[0] == 9) + (att[a].has[1] == 9) + (att[a].has[2] == 9) > 0)
#define tooLate(c) \
	n = 0; \
	do \
	:: n < ATTEMPTS && underWay(n) -> giveUp(n); n++ \
	:: n < ATTEMPTS && !underWay(n) -> n++ \
	:: else -> break \
	od
#endif
#define lose(c) \
	tooLate(c); \
	copy[c].tail = copy[c].tail0; copy[c].top = copy[c].top0; copy[c].data = copy[c].data0; copy[c].end = copy[c].end0; forgot++
proctype power() {
	do
	:: d_step { forgot < FORGET && copy[0].tail != copy[0].tail0 && whole(1, 2) -> lose(0); REACHED(8) }
	:: d_step { forgot < FORGET && copy[1].tail != copy[1].tail0 && whole(0, 2) -> lose(1); REACHED(8) }
	:: d_step { forgot < FORGET && copy[2].tail != copy[2].tail0 && whole(0, 1) -> lose(2); REACHED(8) }
	od
}
#endif

init {
	byte i;
	atomic {
		i = 0;
		do
		:: i < 3 ->
			copy[i].next = 1; copy[i].tail = 1;
#ifndef EMPTY
			copy[i].next = 2; copy[i].tail = 2; copy[i].top = 1; copy[i].data = 1; copy[i].end = 1;
			att[0].tail[i] = 2; att[0].has[i] = 2;
#endif
#if FORGET
			remember(i);
#endif
			i++
		:: else -> break
		od;
#ifndef EMPTY
		used = 2; begun = 1; head = 1;
		att[0].phase = NEXT; att[0].ballot = 1; att[0].end = 1; parent[2] = 1;
#endif
		i = 0;
		do
		:: i < ATTEMPTS -> run attempt(i); i++
		:: else -> break
		od;
		i = 0;
#ifdef READER
		run reader();
#endif
#if FORGET
		run power();
#endif
	}
}
