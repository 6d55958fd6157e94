// CT_DIMS for C++, which has no compound literals: a list that lives until the end of the
// expression. Part of cotan.h.
#ifndef COTAN_LISTS_HPP
#define COTAN_LISTS_HPP

extern "C++" {

template <size_t N> struct ct__list {
    int64_t v[N + 1];
    operator ct_ints() const { return {static_cast<int64_t>(N), v}; }
};
template <class... T> inline ct__list<sizeof...(T)> ct__list_of(T... n) {
    return {{static_cast<int64_t>(n)..., 0}};
}

} // extern "C++"

#endif
