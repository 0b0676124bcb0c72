package telemetry

import "reflect"

// Sum adds every counter of src to that of dst. Both are structs of integers, of
// arrays of them and of such structs, because nodes keep a set of counters per
// goroutine. It cannot forget a counter that is added later.
func Sum[T any](dst, src *T) { sum(reflect.ValueOf(dst).Elem(), reflect.ValueOf(src).Elem()) }

func sum(dst, src reflect.Value) {
	switch dst.Kind() {
	case reflect.Struct:
		for i := range dst.NumField() {
			sum(dst.Field(i), src.Field(i))
		}
	case reflect.Array:
		for i := range dst.Len() {
			sum(dst.Index(i), src.Index(i))
		}
	case reflect.Int, reflect.Int64:
		dst.SetInt(dst.Int() + src.Int())
	case reflect.Uint64:
		dst.SetUint(dst.Uint() + src.Uint())
	default:
		panic("telemetry: a counter that is no integer: " + dst.Kind().String())
	}
}
