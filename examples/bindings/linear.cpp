// Cotan from C++: trains a linear model. The options have names (C++20; for C++17 see cotan.hpp).
#include <cotan/cotan.hpp>

#include <cstdio>
#include <vector>

int main() {
    constexpr int n = 64;
    std::vector<float> xs, ys;
    for (int i = 0; i < n; i++) { // y = 2 a - 3 b + 1
        float a = static_cast<float>(i % 8) / 8, b = static_cast<float>(i / 8) / 8;
        xs.insert(xs.end(), {a, b});
        ys.push_back(2 * a - 3 * b + 1);
    }
    ct_params *params = ct_params_new();
    ct_tensor w = cotan::param(params, "w", CT_F32, {2, 1});
    ct_tensor b = cotan::param(params, "b", CT_F32, {1});
    cotan::assign(w, cotan::zeros(CT_F32, {2, 1}));
    cotan::assign(b, cotan::zeros(CT_F32, {1}));
    ct_optim *adam = cotan::adam(params, {.lr = 0.05});
    for (int step = 0; step < 400 && !ct_failed(); step++) {
        CT_SCOPE;
        ct_tensor x = cotan::from(xs.data(), CT_F32, {n, 2}); // (64, 2)
        ct_tensor y = cotan::from(ys.data(), CT_F32, {n, 1}); // (64, 1)
        ct_tensor error = cotan::sub(cotan::add(cotan::matmul(x, w), b), y);
        ct_tensor loss = cotan::mean(cotan::square(error), {.axes = {0, 1}});
        cotan::optim_step(adam, loss);
        cotan::metric("loss", loss);
    }
    {
        CT_SCOPE;
        auto weights = static_cast<const float *>(cotan::data(w));
        auto bias = static_cast<const float *>(cotan::data(b));
        if (weights && bias)
            std::printf("y = %.5f a + %.5f b + %.5f, loss %.2e\n", static_cast<double>(weights[0]),
                        static_cast<double>(weights[1]), static_cast<double>(bias[0]),
                        ct_metric_value("loss"));
    }
    bool failed = ct_failed();
    if (failed) std::fprintf(stderr, "%s\n", ct_error_text());
    ct_optim_free(adam);
    ct_params_free(params);
    return failed;
}
