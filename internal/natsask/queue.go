package natsask

// A queue is first in, first out. It keeps its memory.
type queue struct {
	list []*Request
	head int
}

func (q *queue) len() int { return len(q.list) - q.head }

func (q *queue) first() *Request { return q.list[q.head] }

func (q *queue) push(r *Request) { q.list = append(q.list, r) }

func (q *queue) pop() *Request {
	r := q.list[q.head]
	q.list[q.head] = nil
	q.head++
	if q.head*2 >= len(q.list) {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	return r
}
