// Cotan from Go: trains a linear model. Where cotan is installed: go run linear.go
package main

// #cgo pkg-config: cotan
// #include <cotan/optim.h>
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

const n = 64

func here() C.ct_loc {
	_, _, line, _ := runtime.Caller(1)
	return C.ct_loc{file: file, line: C.uint32_t(line)}
}

var file = C.CString("linear.go") // lives as long as the program: error texts name it

func dims(sizes ...C.int64_t) C.ct_ints {
	return C.ct_ints{n: C.int64_t(len(sizes)), v: &sizes[0]}
}

func main() {
	runtime.LockOSThread() // a context belongs to a thread

	var xs [2 * n]C.float
	var ys [n]C.float
	for i := 0; i < n; i++ { // y = 2 a - 3 b + 1
		a, b := C.float(i%8)/8, C.float(i/8)/8
		xs[2*i], xs[2*i+1], ys[i] = a, b, 2*a-3*b+1
	}
	nameW, nameB, nameLoss := C.CString("w"), C.CString("b"), C.CString("loss")
	defer C.free(unsafe.Pointer(nameW))
	defer C.free(unsafe.Pointer(nameB))
	defer C.free(unsafe.Pointer(nameLoss))

	params := C.ct_params_new()
	defer C.ct_params_free(params)
	w := C.ct_param_at(params, nameW, C.CT_F32, dims(2, 1), here())
	b := C.ct_param_at(params, nameB, C.CT_F32, dims(1), here())
	C.ct_assign_at(w, C.ct_zeros_at(C.CT_F32, dims(2, 1), here()), here())
	C.ct_assign_at(b, C.ct_zeros_at(C.CT_F32, dims(1), here()), here())
	adam := C.ct_adam_with(params, C.ct_optim_options{lr: 0.05, here: here()})
	defer C.ct_optim_free(adam)

	for step := 0; step < 400 && !bool(C.ct_failed()); step++ {
		scope := C.ct_scope_begin(here())
		x := C.ct_from_at(unsafe.Pointer(&xs[0]), C.CT_F32, dims(n, 2), here())
		y := C.ct_from_at(unsafe.Pointer(&ys[0]), C.CT_F32, dims(n, 1), here())
		miss := C.ct_sub_at(C.ct_add_at(C.ct_matmul_at(x, w, here()), b, here()), y, here())
		loss := C.ct_mean_with(C.ct_mean_args{x: C.ct_square_at(miss, here()), here: here()})
		C.ct_optim_step_at(adam, loss, here())
		C.ct_metric_at(nameLoss, loss, here())
		C.ct_scope_end(scope, here())
	}

	scope := C.ct_scope_begin(here())
	defer C.ct_scope_end(scope, here())
	weights, bias := (*[2]C.float)(C.ct_data_at(w, here())), (*C.float)(C.ct_data_at(b, here()))
	if bool(C.ct_failed()) {
		fmt.Fprintln(os.Stderr, C.GoString(C.ct_error_text()))
		os.Exit(1)
	}
	fmt.Printf("y = %.5f a + %.5f b + %.5f, loss %.2e\n", weights[0], weights[1], *bias,
		C.ct_metric_value(nameLoss))
}
