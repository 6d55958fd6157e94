// Cotan for C++17 and later: every function of the C headers is in namespace cotan without its
// prefix. It determines the caller's source line itself, options have names, and a list of tensors
// is written in braces: cotan::grad(loss, {w, b}, slopes). With C++20
//
//     ct_tensor y = cotan::sum(x, {.axes = {1}, .keepdims = true});
//
// and with C++17
//
//     cotan::sum_args o;
//     o.axes = {1};
//     ct_tensor y = cotan::sum(x, o);
//
// Types and statements of the C headers are used as they are: ct_tensor, CT_SCOPE. Names that are
// C++ keywords end with an underscore: cotan::and_, cotan::const_.
#ifndef COTAN_COTAN_HPP
#define COTAN_COTAN_HPP

#include <initializer_list>
#include <vector>

#include "cotan/binding.h"
#include "cotan/chat.h"
#include "cotan/data.h"
#include "cotan/device.h"
#include "cotan/embed.h"
#include "cotan/engine.h"
#include "cotan/eval.h"
#include "cotan/custom_op.h"
#include "cotan/hub.h"
#include "cotan/io.h"
#include "cotan/lm.h"
#include "cotan/memory.h"
#include "cotan/models.h"
#include "cotan/nn.h"
#include "cotan/optim.h"
#include "cotan/profile.h"
#include "cotan/tokenizer.h"
#include "cotan/train.h"

namespace cotan {

// Sizes, axes, starts: {2, 3}. It owns its numbers, so that it can be stored. It holds up to one
// number more than a tensor can have axes, so that a list that is too long is reported as such.
class ints {
  public:
    ints() = default;
    ints(std::initializer_list<int64_t> list) : ints(list.begin(), list.size()) {}
    ints(const ct_ints &list) : ints(list.v, static_cast<size_t>(list.n)) {}
    ints(const int64_t *from, size_t n) {
        for (; n_ < static_cast<int64_t>(n) && n_ <= CT_MAX_RANK; n_++) v_[n_] = from[n_];
    }
    operator ct_ints() const { return {n_, v_}; }

  private:
    int64_t n_ = 0;
    int64_t v_[CT_MAX_RANK + 1] = {};
};

// Tensors with names: {{"images", images}, {"loss", loss}}. It owns the list, not the strings.
class name_list {
  public:
    name_list() = default;
    name_list(std::initializer_list<ct_named_tensor> list) : v_(list) {}
    name_list(const ct_named_list &list) : v_(list.v, list.v + list.n) {}
    operator ct_named_list() const { return {v_.data(), v_.size()}; }

  private:
    std::vector<ct_named_tensor> v_;
};

// An optional number.
class num {
  public:
    num() = default;
    num(double value) : c_{value, true} {}
    operator ct_num() const { return c_; }

  private:
    ct_num c_ = {0, false};
};

} // namespace cotan

// The source line of the call.
#define CT__CALLER const char *file = __builtin_FILE(), uint32_t line = __builtin_LINE()

#include "cotan/functions.hpp"

namespace cotan {

// An optimizer made of transforms: cotan::chain(params, lr, {ct_trace(0.9, false),
// ct_scale_by_learning_rate()}).
inline ct_optim *chain(ct_params *params, const ct_schedule &lr,
                       std::initializer_list<ct_transform> transforms, CT__CALLER) {
    return ::ct_chain_of(params, lr, transforms.begin(), transforms.size(), {file, line});
}

} // namespace cotan

#endif
