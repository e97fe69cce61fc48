// The style sheet of the report: light and dark, with one accent colour.
#pragma once

namespace sotto {

inline constexpr const char* report_style = R"css(
:root {
  --page: #f6f5f2; --paper: #ffffff; --ink: #1f2430; --soft: #667085; --line: #e4e2dc;
  --alarm: #b42318; --alarm-back: #fef1ef;
  --c0: #2a6f97; --c1: #d1603d; --c2: #5b5fa8; --c3: #4d7c59; --c4: #b08a2e; --c5: #8a8f9c;
  --c6: #a14a76; --c7: #3f8f8a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14161b; --paper: #1c1f26; --ink: #e8e6e1; --soft: #98a1b3; --line: #31353f;
    --alarm: #ff8a7a; --alarm-back: #33201e;
    --c0: #6cb2da; --c1: #eb8d6c; --c2: #9b9fe6; --c3: #84ba92; --c4: #d9b762; --c5: #9aa0ae;
    --c6: #d488ad; --c7: #76c4bf;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main { max-width: 1040px; margin: 0 auto; padding: 40px 20px 64px; overflow-wrap: anywhere; }
h1 { margin: 0 0 24px; font-size: 28px; line-height: 1.2; font-weight: 650; letter-spacing: -0.01em; }
h2 { margin: 0 0 14px; font-size: 17px; font-weight: 650; }
h3 { margin: 18px 0 4px; font-size: 14px; font-weight: 650; }
p { margin: 0 0 12px; }
ul { margin: 0; padding-left: 18px; }
section, .card {
  background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
}
section { padding: 22px 24px; margin-top: 18px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 14px; }
.card .badge { margin: 6px 0 0; }
.card { padding: 16px 20px; }
.card .name, .card .below { color: var(--soft); font-size: 13px; }
.card .value {
  font-size: 26px; line-height: 1.3; font-weight: 650; letter-spacing: -0.02em; white-space: nowrap;
  font-variant-numeric: tabular-nums;
}
.alarm { border-color: var(--alarm); background: var(--alarm-back); }
.alarm .value { color: var(--alarm); }
.banner {
  margin-bottom: 18px; padding: 16px 20px; border: 1px solid var(--alarm); border-radius: 10px;
  background: var(--alarm-back);
}
.banner strong { color: var(--alarm); font-size: 19px; margin-right: 6px; }
.badge {
  display: inline-block; margin-left: 6px; padding: 1px 8px; border: 1px solid var(--alarm);
  border-radius: 999px; color: var(--alarm); font-size: 11px; font-weight: 600; line-height: 1.5;
  vertical-align: 2px; white-space: nowrap;
}
.claim { font-size: 16px; max-width: 76ch; }
.note { margin: 14px 0 0; color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); gap: 8px 40px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 18px 24px; }
dl { margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.facts > div { display: grid; grid-template-columns: 190px 1fr; padding: 7px 0; border-top: 1px solid var(--line); }
.settings { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 280px), 1fr)); gap: 0 32px; }
.settings > div { display: flex; justify-content: space-between; gap: 16px; padding: 6px 0; border-top: 1px solid var(--line); }
.settings dd { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 0 0 10px; }
figcaption { font-size: 13px; font-weight: 600; margin-bottom: 2px; }
svg { display: block; width: 100%; max-width: 520px; height: auto; overflow: visible; }
svg.wide { max-width: none; }
svg text { fill: var(--soft); font-size: 12px; font-variant-numeric: tabular-nums; }
svg text.last { fill: var(--ink); font-weight: 650; }
.grid { stroke: var(--line); stroke-width: 1; }
.bound { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 5 4; }
.hover { fill: transparent; }
.hover:hover { fill: var(--ink); fill-opacity: 0.06; }
polyline { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.line-0 { stroke: var(--c0); } .line-1 { stroke: var(--c1); } .line-2 { stroke: var(--c2); }
.line-3 { stroke: var(--c3); } .line-4 { stroke: var(--c4); } .line-5 { stroke: var(--c5); }
.line-6 { stroke: var(--c6); } .line-7 { stroke: var(--c7); }
.fill-0 { fill: var(--c0); } .fill-1 { fill: var(--c1); } .fill-2 { fill: var(--c2); }
.fill-3 { fill: var(--c3); } .fill-4 { fill: var(--c4); } .fill-5 { fill: var(--c5); }
.fill-6 { fill: var(--c6); } .fill-7 { fill: var(--c7); }
.back-0 { background: var(--c0); } .back-1 { background: var(--c1); } .back-2 { background: var(--c2); }
.back-3 { background: var(--c3); } .back-4 { background: var(--c4); } .back-5 { background: var(--c5); }
.back-6 { background: var(--c6); } .back-7 { background: var(--c7); }
table { width: 100%; margin-top: 14px; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 500; font-size: 13px; text-align: left; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
.confusion { width: auto; }
.confusion th, .confusion td { padding: 6px 10px; }
.n { text-align: right; white-space: nowrap; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 10px; }
.meter { width: 28%; min-width: 60px; padding-right: 0; }
.meter div { height: 8px; border-radius: 4px; background: var(--c5); }
pre { margin: 0; white-space: pre-wrap; font-size: 13px; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(120px, 1fr)); gap: 14px; }
.pictures img { width: 96px; image-rendering: pixelated; }
.pictures figcaption { font-weight: 400; }
.empty { color: var(--soft); font-style: italic; }
a { color: inherit; }
@media (max-width: 600px) {
  main { padding: 20px 10px 40px; }
  section { padding: 16px 14px; }
  .facts > div { grid-template-columns: 1fr; }
  .cards { grid-template-columns: 1fr 1fr; gap: 10px; }
  .card { padding: 12px 14px; }
  .card .value { font-size: 24px; }
  svg text { font-size: 15px; }
  .scroll svg.wide { min-width: 700px; }
}
)css";

}  // namespace sotto
