#include "nn/data/digit_strokes.h"

namespace sotto {

namespace {

constexpr Knot p(float x, float y) { return {{x, y}}; }
constexpr Knot corner(float x, float y) { return {{x, y}, true}; }

// Closed at the top; begun at the right and crossed over; tall and left open.
std::vector<Writing> zeros() {
  return {
      {5,
       {{p(.02f, -.5f), p(-.23f, -.32f), p(-.31f, 0), p(-.22f, .36f), p(.02f, .5f), p(.26f, .32f),
         p(.31f, 0), p(.22f, -.36f), p(.0f, -.5f)}}},
      {3,
       {{p(.2f, -.44f), p(-.06f, -.49f), p(-.28f, -.2f), p(-.27f, .2f), p(-.03f, .49f),
         p(.2f, .35f), p(.3f, 0), p(.18f, -.38f), p(-.08f, -.44f)}}},
      {2,
       {{p(.08f, -.5f), p(-.15f, -.25f), p(-.22f, .1f), p(-.12f, .44f), p(.1f, .48f), p(.24f, .2f),
         p(.25f, -.15f), p(.14f, -.42f)}}},
  };
}

// A bare stroke, straight or bent; with a flag; with a flag and a foot.
std::vector<Writing> ones() {
  return {
      {4, {{p(.0f, -.5f), p(.01f, .0f), p(.0f, .5f)}}},
      {2, {{p(.04f, -.5f), p(-.03f, .0f), p(.03f, .5f)}}},
      {3, {{p(-.15f, -.3f), p(-.06f, -.4f), corner(.03f, -.5f), p(.03f, .0f), p(.03f, .5f)}}},
      {2,
       {{p(-.14f, -.32f), corner(.02f, -.5f), p(.02f, .0f), p(.02f, .49f)},
        {p(-.18f, .49f), p(.0f, .5f), p(.2f, .49f)}}},
  };
}

// A sharp heel; a loop at the heel; a swan's neck on a wavy base.
std::vector<Writing> twos() {
  return {
      {4,
       {{p(-.26f, -.28f), p(-.12f, -.48f), p(.14f, -.46f), p(.24f, -.22f), p(.1f, .08f),
         p(-.12f, .3f), corner(-.28f, .47f), p(.0f, .47f), p(.3f, .46f)}}},
      {4,
       {{p(-.26f, -.3f), p(-.06f, -.5f), p(.19f, -.38f), p(.2f, -.12f), p(.02f, .2f),
         p(-.18f, .43f), p(-.29f, .38f), p(-.18f, .27f), p(.0f, .4f), p(.16f, .48f),
         p(.33f, .38f)}}},
      {2,
       {{p(-.2f, -.2f), p(-.2f, -.42f), p(.02f, -.5f), p(.22f, -.34f), p(.12f, -.04f), p(-.1f, .2f),
         corner(-.3f, .44f), p(-.1f, .38f), p(.1f, .49f), p(.3f, .42f)}}},
  };
}

// Two bows; a flat top; a small loop between the bows.
std::vector<Writing> threes() {
  return {
      {5,
       {{p(-.24f, -.38f), p(.0f, -.5f), p(.21f, -.32f), p(.12f, -.1f), corner(-.07f, -.02f),
         p(.16f, .06f), p(.26f, .26f), p(.07f, .48f), p(-.26f, .4f)}}},
      {2,
       {{p(-.25f, -.48f), p(.0f, -.48f), corner(.22f, -.48f), corner(-.03f, -.1f), p(.18f, .0f),
         p(.26f, .24f), p(.05f, .48f), p(-.27f, .38f)}}},
      {3,
       {{p(-.22f, -.42f), p(.02f, -.5f), p(.2f, -.34f), p(.1f, -.1f), p(-.08f, .0f),
         p(-.08f, -.08f), p(.1f, .0f), p(.25f, .22f), p(.08f, .48f), p(-.24f, .42f)}}},
  };
}

// Open at the top with an angle; closed; open with a round cup.
std::vector<Writing> fours() {
  return {
      {4,
       {{p(-.16f, -.48f), p(-.22f, -.2f), corner(-.28f, .08f), p(.0f, .07f), p(.29f, .04f)},
        {p(.16f, -.34f), p(.13f, .1f), p(.1f, .5f)}}},
      {3,
       {{corner(.12f, -.5f), p(-.1f, -.16f), corner(-.3f, .16f), p(.0f, .16f), p(.3f, .15f)},
        {p(.12f, -.5f), p(.12f, .0f), p(.12f, .5f)}}},
      {4,
       {{p(-.22f, -.44f), p(-.26f, -.14f), p(-.12f, .04f), p(.16f, -.02f)},
        {p(.22f, -.46f), p(.17f, .0f), p(.12f, .5f)}}},
  };
}

// Down, round, and a bar at last; all in one stroke; rounded like an S.
std::vector<Writing> fives() {
  return {
      {5,
       {{p(-.18f, -.47f), p(-.2f, -.28f), corner(-.21f, -.06f), p(.03f, -.14f), p(.23f, .04f),
         p(.21f, .32f), p(-.02f, .49f), p(-.26f, .38f)},
        {p(-.18f, -.47f), p(.04f, -.48f), p(.28f, -.49f)}}},
      {4,
       {{p(.26f, -.48f), p(.05f, -.47f), corner(-.16f, -.46f), corner(-.21f, -.04f), p(.02f, -.12f),
         p(.22f, .08f), p(.18f, .36f), p(-.05f, .49f), p(-.26f, .4f)}}},
      {2,
       {{p(.27f, -.46f), p(.0f, -.49f), p(-.19f, -.34f), p(-.12f, -.12f), p(.14f, .04f),
         p(.2f, .28f), p(.02f, .48f), p(-.25f, .42f)}}},
  };
}

// A bent back with a bow that meets it; a straight back; a bow that curls inwards.
std::vector<Writing> sixes() {
  return {
      {5,
       {{p(.18f, -.49f), p(-.09f, -.28f), p(-.25f, .08f), p(-.2f, .39f), p(.04f, .5f),
         p(.23f, .29f), p(.11f, .07f), p(-.1f, .09f), p(-.24f, .26f)}}},
      {3,
       {{p(.04f, -.5f), p(-.12f, -.16f), p(-.23f, .2f), p(-.12f, .47f), p(.13f, .45f), p(.22f, .2f),
         p(.06f, .05f), p(-.17f, .19f)}}},
      {3,
       {{p(.12f, -.5f), p(-.15f, -.22f), p(-.27f, .14f), p(-.16f, .45f), p(.1f, .48f), p(.23f, .3f),
         p(.12f, .12f), p(-.04f, .2f), p(-.02f, .32f)}}},
  };
}

// Plain; with a bar; with a serif; round at the shoulder.
std::vector<Writing> sevens() {
  return {
      {4, {{p(-.28f, -.45f), p(.0f, -.46f), corner(.27f, -.47f), p(.1f, .0f), p(-.05f, .5f)}}},
      {3,
       {{p(-.27f, -.46f), p(.0f, -.46f), corner(.27f, -.47f), p(.09f, .0f), p(-.07f, .5f)},
        {p(-.13f, .03f), p(.04f, .01f), p(.24f, .0f)}}},
      {2,
       {{p(-.29f, -.28f), corner(-.27f, -.46f), p(.0f, -.46f), corner(.27f, -.46f), p(.08f, -.02f),
         p(.0f, .5f)}}},
      {3,
       {{p(-.28f, -.38f), p(-.08f, -.47f), p(.2f, -.46f), p(.22f, -.3f), p(.06f, .06f),
         p(-.04f, .5f)}}},
  };
}

// One stroke, an S that returns; two rings; an S that stays open at the top.
std::vector<Writing> eights() {
  return {
      {5,
       {{p(.18f, -.4f), p(-.02f, -.5f), p(-.2f, -.34f), p(-.1f, -.13f), p(.12f, .06f), p(.23f, .3f),
         p(.0f, .5f), p(-.23f, .32f), p(-.11f, .07f), p(.12f, -.14f), p(.2f, -.34f),
         p(.08f, -.49f)}}},
      {2,
       {{p(.04f, -.5f), p(-.18f, -.34f), p(-.12f, -.1f), p(.1f, -.08f), p(.2f, -.3f), p(.0f, -.5f)},
        {p(.02f, -.06f), p(-.22f, .14f), p(-.15f, .46f), p(.12f, .48f), p(.23f, .18f),
         p(.0f, -.06f)}}},
      {3,
       {{p(.22f, -.44f), p(.0f, -.49f), p(-.19f, -.32f), p(-.06f, -.1f), p(.16f, .1f), p(.2f, .36f),
         p(-.04f, .5f), p(-.22f, .32f), p(-.06f, .04f), p(.16f, -.2f), p(.24f, -.38f)}}},
  };
}

// A ring on a straight stem; on a tail that bends to the left; on a leaning stroke.
std::vector<Writing> nines() {
  return {
      {4,
       {{p(.19f, -.34f), p(.02f, -.49f), p(-.21f, -.32f), p(-.16f, -.07f), p(.06f, -.06f),
         corner(.2f, -.3f), p(.19f, .1f), p(.15f, .5f)}}},
      {3,
       {{p(.18f, -.36f), p(-.02f, -.5f), p(-.22f, -.28f), p(-.1f, -.04f), p(.12f, -.12f),
         corner(.2f, -.36f), p(.21f, .0f), p(.12f, .36f), p(-.06f, .49f), p(-.22f, .38f)}}},
      {4,
       {{p(.2f, -.42f), p(-.02f, -.47f), p(-.2f, -.26f), p(-.1f, -.06f), p(.1f, -.16f),
         p(.21f, -.42f), p(.12f, .0f), p(.0f, .5f)}}},
  };
}

}  // namespace

const std::array<std::vector<Writing>, 10>& digit_writings() {
  static const std::array<std::vector<Writing>, 10> writings = {
      zeros(), ones(), twos(), threes(), fours(), fives(), sixes(), sevens(), eights(), nines()};
  return writings;
}

}  // namespace sotto
