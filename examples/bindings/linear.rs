// Cotan from Rust: trains a linear model with the declarations that bindgen makes of the headers.
//     bindgen linear.h --allowlist-function "ct_.*" --allowlist-type "ct_.*" \
//         --default-enum-style consts --no-prepend-enum-name -o cotan.rs
//     COTAN_RS=$PWD/cotan.rs rustc linear.rs -L ... -l cotan        (linear.h: #include <cotan/optim.h>)
#[allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals)]
mod cotan {
    include!(env!("COTAN_RS"));
}
use cotan::*;
use std::ffi::{CStr, CString};

const N: usize = 64;

macro_rules! here {
    () => {
        ct_loc { file: concat!(file!(), "\0").as_ptr().cast(), line: line!() }
    };
}

fn dims(sizes: &[i64]) -> ct_ints {
    ct_ints { n: sizes.len() as i64, v: sizes.as_ptr() }
}

fn main() {
    let (mut xs, mut ys) = ([0f32; 2 * N], [0f32; N]);
    for i in 0..N { // y = 2 a - 3 b + 1
        let (a, b) = ((i % 8) as f32 / 8., (i / 8) as f32 / 8.);
        (xs[2 * i], xs[2 * i + 1], ys[i]) = (a, b, 2. * a - 3. * b + 1.);
    }
    let (name_w, name_b) = (CString::new("w").unwrap(), CString::new("b").unwrap());
    let name_loss = CString::new("loss").unwrap();
    unsafe {
        let params = ct_params_new();
        let w = ct_param_at(params, name_w.as_ptr(), CT_F32, dims(&[2, 1]), here!());
        let b = ct_param_at(params, name_b.as_ptr(), CT_F32, dims(&[1]), here!());
        ct_assign_at(w, ct_zeros_at(CT_F32, dims(&[2, 1]), here!()), here!());
        ct_assign_at(b, ct_zeros_at(CT_F32, dims(&[1]), here!()), here!());
        let mut options: ct_optim_options = std::mem::zeroed(); // zero means the default
        options.lr = 0.05;
        options.here = here!();
        let adam = ct_adam_with(params, options);
        for _ in 0..400 {
            let scope = ct_scope_begin(here!());
            let x = ct_from_at(xs.as_ptr().cast(), CT_F32, dims(&[N as i64, 2]), here!());
            let y = ct_from_at(ys.as_ptr().cast(), CT_F32, dims(&[N as i64, 1]), here!());
            let miss = ct_sub_at(ct_add_at(ct_matmul_at(x, w, here!()), b, here!()), y, here!());
            let mut mean: ct_mean_args = std::mem::zeroed();
            mean.x = ct_square_at(miss, here!());
            mean.here = here!();
            let loss = ct_mean_with(mean);
            ct_optim_step_at(adam, loss, here!());
            ct_metric_at(name_loss.as_ptr(), loss, here!());
            ct_scope_end(scope, here!());
            if ct_failed() {
                break;
            }
        }
        let scope = ct_scope_begin(here!());
        let (weights, bias) = (ct_data_at(w, here!()) as *const f32, ct_data_at(b, here!()) as *const f32);
        if ct_failed() {
            eprintln!("{}", CStr::from_ptr(ct_error_text()).to_string_lossy());
            std::process::exit(1);
        }
        let (loss, mut places) = (ct_metric_value(name_loss.as_ptr()), 0);
        while loss > 0. && loss * 10f64.powi(places) < 1. {
            places += 1;
        }
        println!("y = {:.5} a + {:.5} b + {:.5}, loss {:.2}e-{:02}", *weights, *weights.add(1), *bias,
                 loss * 10f64.powi(places), places);
        ct_scope_end(scope, here!());
        ct_optim_free(adam);
        ct_params_free(params);
    }
}
