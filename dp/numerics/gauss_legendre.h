// Gauss-Legendre quadrature with few points.
#pragma once

#include <array>
#include <cstddef>

namespace sotto {

// A point of a rule on [-1, 1].
struct QuadratureNode {
  double position, weight;
};

template <std::size_t points>
using QuadratureRule = std::array<QuadratureNode, points>;

inline constexpr QuadratureRule<3> gauss_legendre_3 = {
    {{-0.77459666924148338, 5.0 / 9}, {0, 8.0 / 9}, {0.77459666924148338, 5.0 / 9}}};
inline constexpr QuadratureRule<4> gauss_legendre_4 = {
    {{-0.86113631159405258, 0.34785484513745386},
     {-0.33998104358485626, 0.65214515486254614},
     {0.33998104358485626, 0.65214515486254614},
     {0.86113631159405258, 0.34785484513745386}}};
inline constexpr QuadratureRule<8> gauss_legendre_8 = {
    {{-0.96028985649753623, 0.10122853629037626},
     {-0.79666647741362674, 0.22238103445337447},
     {-0.52553240991632899, 0.31370664587788729},
     {-0.18343464249564980, 0.36268378337836198},
     {0.18343464249564980, 0.36268378337836198},
     {0.52553240991632899, 0.31370664587788729},
     {0.79666647741362674, 0.22238103445337447},
     {0.96028985649753623, 0.10122853629037626}}};

// Calls visit(weight, x) for the points of a rule on [from, to]: the integral of f is about the sum
// of weight * f(x).
template <std::size_t points, class Visit>
void visit_points(const QuadratureRule<points>& rule, double from, double to, const Visit& visit) {
  const double middle = 0.5 * (from + to), half = 0.5 * (to - from);
  for (const QuadratureNode& node : rule) visit(half * node.weight, middle + half * node.position);
}

}  // namespace sotto
