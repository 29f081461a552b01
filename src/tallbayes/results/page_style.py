"""The style sheet of `Fit.report`: light and dark, desktop, phone and print."""

STYLE = """
:root { color-scheme: light dark; --text: #1d232b; --soft: #5b6673; --page: #f6f7f9; --card: #ffffff; --line: #dfe3e8;
  --accent: #2a6fbb; --good: #23734a; --bad: #a33a16; --bad-page: #fdf0ea; --bad-line: #e6b39f; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ed; --soft: #9ba7b4; --page: #14181d; --card: #1d232a;
  --line: #343d47; --accent: #7fb2e8; --good: #6fc697; --bad: #f0a184; --bad-page: #36211a; --bad-line: #7d4632; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0.25rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0 0 0.6rem; }
p { margin: 0.3rem 0 0.6rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.1rem; margin-top: 1rem; }
.soft { color: var(--soft); }
.tag { display: inline-block; border: 1px solid currentcolor; border-radius: 99px; padding: 0 0.7rem; font-size: 0.82rem;
  font-weight: 600; margin: 0 0.35rem 0.35rem 0; }
.good { color: var(--good); } .bad { color: var(--bad); }
.warning { background: var(--bad-page); border-color: var(--bad-line); }
.warning h2 { color: var(--bad); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; width: 100%; }
th, td { text-align: right; padding: 0.28rem 0.6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
tr:last-child td, tr:last-child th { border-bottom: 0; }
td.bad { font-weight: 700; }
dl { display: grid; grid-template-columns: minmax(6rem, 15rem) 1fr; gap: 0.25rem 1rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
ul { margin: 0; padding-left: 1.1rem; }
figure { margin: 0.8rem 0 0; } figcaption { color: var(--soft); font-size: 0.85rem; margin-bottom: 0.3rem; }
img { width: 100%; min-width: 36rem; height: auto; display: block; background: #fff; border-radius: 6px; }
img.forest { min-width: 20rem; }
code { font-size: 0.85em; overflow-wrap: anywhere; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 0.5rem; } main { padding: 0.75rem; }
  section { padding: 0.8rem; } table { font-size: 0.8rem; } th, td { padding: 0.25rem 0.35rem; } }
main > h2 { margin: 1.8rem 0 0; }
summary { cursor: pointer; color: var(--accent); }
ul + figure, ul + p { margin-top: 0.8rem; }
.wide + dl, .wide + details, details + dl, figure + p { margin-top: 0.8rem; } li { margin-bottom: 0.25rem; }
@media print { :root { color-scheme: light; } body { background: #fff; font-size: 11pt; } main { max-width: none; padding: 0; }
  section, figure, tr { break-inside: avoid; } section { border: 0; padding: 0; } img { min-width: 0; } .wide { overflow: visible; }
  details::details-content { content-visibility: visible; } summary { display: none; } }
"""
