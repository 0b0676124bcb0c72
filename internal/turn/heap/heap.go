// Package heap is a binary heap whose items know their place, so that an item that is
// in the middle can be moved or removed in logarithmic time.
package heap

// A Heap holds items with the least one first. An item is in one heap at most, because
// it stores its place there.
type Heap[T any] struct {
	items []T
	less  func(a, b T) bool
	place func(T) *int // where an item stores its place, counted from 1; 0 means in no heap
}

// New returns an empty heap in the order of less. place returns where an item stores
// its place, which the heap owns: it is 0 while the item is in no heap.
func New[T any](less func(a, b T) bool, place func(T) *int) *Heap[T] {
	return &Heap[T]{less: less, place: place}
}

// Len returns the number of items.
func (h *Heap[T]) Len() int { return len(h.items) }

// First returns the least item. It reports false if the heap is empty.
func (h *Heap[T]) First() (x T, ok bool) {
	if len(h.items) == 0 {
		return x, false
	}
	return h.items[0], true
}

// Pop removes the least item and returns it. The heap must not be empty.
func (h *Heap[T]) Pop() T {
	x := h.items[0]
	h.Remove(x)
	return x
}

// Set adds x, or moves it to where it belongs after its order changed.
func (h *Heap[T]) Set(x T) {
	i := *h.place(x) - 1
	if i < 0 {
		i = len(h.items)
		h.items = append(h.items, x)
		*h.place(x) = i + 1
	}
	h.fix(i)
}

// Remove removes x. It does nothing if x is not in the heap.
func (h *Heap[T]) Remove(x T) {
	i, last := *h.place(x)-1, len(h.items)-1
	if i < 0 {
		return
	}
	h.swap(i, last)
	clear(h.items[last:])
	h.items = h.items[:last]
	*h.place(x) = 0
	if i < last {
		h.fix(i)
	}
}

// fix moves item i up or down to where it belongs.
func (h *Heap[T]) fix(i int) {
	for i > 0 && h.less(h.items[i], h.items[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.items); child++ {
			if h.less(h.items[child], h.items[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h *Heap[T]) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.place(h.items[i]), *h.place(h.items[j]) = i+1, j+1
}
