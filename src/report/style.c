/* SPDX-License-Identifier: Apache-2.0
 *
 * style.c - the style sheet and the script of the page.
 *
 * Text in two sets of colours, each at least 4.5 to 1 against its ground, marks at least 3 to 1.
 * The script only adds: sorting, a search in long tables, the figures as a file.
 */
#include "report/internal.h"

/* clang-format off */
const char *const fp8q_page_style[] = {
    /* Colours.  c0 to c7: series. */
    ":root{--bg:#fff;--box:#f6f7f9;--ink:#1b1f27;--dim:#566072;--line:#d9dde4;--accent:#1f5fbf;--soft:#b8c7de;"
    "--good:#12703a;--goodbg:#e2f4e8;--warn:#7d5300;--warnbg:#fdf1d3;--bad:#b3261e;--badbg:#fde7e5;"
    "--c0:#1f5fbf;--c1:#c2500c;--c2:#12803f;--c3:#a3259b;--c4:#8a6d00;--c5:#0d7c86;--c6:#c5254f;--c7:#6a7280}\n"
    "@media screen and (prefers-color-scheme:dark){:root{--bg:#14171c;--box:#1d2128;--ink:#e7eaf0;--dim:#a3adbd;--line:#343b46;"
    "--accent:#7fb0ff;--soft:#3d4f6d;--good:#7bd69b;--goodbg:#16301f;--warn:#f0c265;--warnbg:#33280f;--bad:#ff9d94;"
    "--badbg:#3a1b19;--c0:#7fb0ff;--c1:#ff9f62;--c2:#6fd08f;--c3:#e695e0;--c4:#e0c25a;--c5:#5fcfd9;--c6:#ff8fa8;"
    "--c7:#a3adbd}}\n",

    /* Page. */
    "*{box-sizing:border-box}html{scroll-behavior:smooth;scroll-padding-top:56px;-webkit-text-size-adjust:100%}\n"
    "@media(prefers-reduced-motion:reduce){html{scroll-behavior:auto}}\n"
    "body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,-apple-system,\"Segoe UI\",Roboto,"
    "\"Noto Sans\",sans-serif;overflow-wrap:break-word}\n"
    "header,main,footer{max-width:1160px;margin:0 auto;padding:0 20px}header{padding-top:36px}\n"
    "h1{font-size:clamp(1.6rem,4.5vw,2.5rem);line-height:1.15;margin:.1em 0 .25em;letter-spacing:-.02em}\n"
    "h2{font-size:1.35rem;line-height:1.25;margin:0 0 .8em;letter-spacing:-.01em}h3{font-size:1rem;margin:1.6em 0 .5em}\n"
    "p{margin:.6em 0;max-width:78ch}a{color:var(--accent)}code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"
    "\"DejaVu Sans Mono\",monospace;font-size:.875em}\n"
    ".over{margin:0;color:var(--dim);font-size:.8rem;letter-spacing:.09em;text-transform:uppercase;font-weight:600}\n"
    ".lead{color:var(--dim);margin-top:0}.small,footer{color:var(--dim);font-size:.85rem}footer{padding-bottom:40px}\n"
    ".skip{position:absolute;left:-999px}.skip:focus{left:12px;top:8px;background:var(--bg);padding:6px 10px;z-index:3}\n"
    "section{padding:34px 0 10px;border-top:1px solid var(--line)}main>section:first-child{border-top:0}\n"
    "pre{background:var(--box);border:1px solid var(--line);border-radius:8px;padding:12px 14px;overflow-x:auto;"
    "overflow-wrap:normal}\n"
    ":focus-visible{outline:2px solid var(--accent);outline-offset:2px}\n",

    /* Verdict, cards, links. */
    ".verdict{display:flex;gap:4px 14px;align-items:baseline;flex-wrap:wrap;max-width:none;padding:12px 16px;"
    "border-radius:10px;border-left:6px solid;margin:18px 0}.verdict strong{font-size:1.15rem}.verdict span{color:var(--ink)}\n"
    ".good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}.dim{color:var(--dim)}\n"
    ".verdict.good,.mark.good{background:var(--goodbg)}.verdict.warn,.mark.warn{background:var(--warnbg)}"
    ".verdict.bad,.mark.bad{background:var(--badbg)}\n"
    ".mark{display:inline-block;padding:0 8px;border-radius:99px;font-size:.82rem;font-weight:600;white-space:nowrap;"
    "background:var(--box)}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(142px,1fr));gap:10px;margin:18px 0 26px}"
    ".cards>div{background:var(--box);border-radius:10px;padding:11px 14px}.cards dt{color:var(--dim);font-size:.8rem}"
    ".cards dd{margin:0;font-size:1.3rem;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}"
    ".cards dd.small{font-size:.78rem;font-weight:400}\n"
    ".list{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px}.list dt{color:var(--dim)}.list dd{margin:0}"
    "@media(max-width:520px){.list{grid-template-columns:1fr}.list dd{margin-bottom:8px}}\n"
    "nav{position:sticky;top:0;background:var(--bg);border-bottom:1px solid var(--line);z-index:2}"
    "nav ul{max-width:1160px;margin:0 auto;padding:0 10px;list-style:none;display:flex;overflow-x:auto;scrollbar-width:none}"
    "nav a{display:block;padding:11px 10px;color:var(--dim);text-decoration:none;white-space:nowrap;font-size:.9rem}"
    "nav a:hover{color:var(--ink)}\n"
    ".note{background:var(--box);border-radius:8px;padding:10px 14px}\n",

    /* Tables. */
    ".scroll{overflow-x:auto;margin:14px 0 22px;border:1px solid var(--line);border-radius:10px}"
    "table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}"
    "caption{text-align:left;padding:10px 14px;font-weight:600}"
    "th,td{padding:6px 14px;text-align:left;vertical-align:top;border-top:1px solid var(--line);font-weight:400}"
    "thead th{color:var(--dim);font-size:.8rem;vertical-align:bottom;background:var(--box)}"
    "tbody th,td{min-width:4.5em}td code,th code{display:inline-block;min-width:20em;overflow-wrap:anywhere}.w{min-width:15em}.n{text-align:right;white-space:nowrap}tbody tr:hover{background:var(--box)}\n"
    "th button{all:unset;cursor:pointer}th button:focus-visible{outline:2px solid var(--accent)}"
    "th button::after{content:\"\\2195\";opacity:.45;padding-left:4px}"
    "th[aria-sort=ascending] button::after{content:\"\\2191\";opacity:1}"
    "th[aria-sort=descending] button::after{content:\"\\2193\";opacity:1}\n"
    "details{margin:14px 0}summary{cursor:pointer;padding:8px 0;color:var(--accent);font-weight:600}"
    "input[type=search]{font:inherit;color:inherit;background:var(--bg);border:1px solid var(--dim);border-radius:8px;"
    "padding:5px 10px;margin:4px 0;width:min(340px,100%)}"
    ".button{font:inherit;font-size:.9rem;color:var(--accent);background:var(--bg);border:1px solid var(--accent);"
    "border-radius:8px;padding:6px 14px;cursor:pointer}\n"
    ".pair{display:grid;gap:0 24px;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));align-items:start}"
    ".pair>*{min-width:0}.pair>.scroll{margin-top:0;max-height:560px;overflow-y:auto}\n",

    /* Plots. */
    ".plots{display:grid;gap:14px;grid-template-columns:repeat(auto-fill,minmax(min(420px,100%),1fr));align-items:start;"
    "margin:14px 0}figure{margin:0;min-width:0}.plot{border:1px solid var(--line);border-radius:10px;padding:12px 14px;"
    "max-width:680px}figcaption{font-size:.88rem;font-weight:600;margin-bottom:8px}"
    "svg{display:block;width:100%;height:auto;overflow:visible}"
    "svg text{font-size:12.5px;fill:var(--dim)}svg .ax{fill:var(--ink)}svg .mid{text-anchor:middle}svg .end{text-anchor:end}\n"
    ".grid{stroke:var(--line);stroke-width:1;fill:none}.axis{stroke:var(--dim);fill:none}.bar{fill:var(--c0)}"
    ".bar.c7{fill:var(--c7)}.line{fill:none;stroke:var(--c0);stroke-width:2}.rule{stroke:var(--soft);stroke-width:2}"
    ".wide{stroke:var(--c0);stroke-width:5;stroke-linecap:round}.limit{stroke:var(--ink);stroke-width:1.5;"
    "stroke-dasharray:4 3}.wide.bad{stroke:var(--bad)}.dot0{fill:var(--bg);stroke:var(--c0);stroke-width:1.5}"
    ".dot1{fill:var(--c0);stroke:var(--bg);stroke-width:1}.dot1.bad,.point.bad{fill:var(--bad)}.point{fill-opacity:.8}.dots{fill:none;stroke-width:4;stroke-linecap:round;stroke-opacity:.7}\n"
    ".point.c0{fill:var(--c0)}.point.c1{fill:var(--c1)}.point.c2{fill:var(--c2)}.point.c3{fill:var(--c3)}"
    ".point.c4{fill:var(--c4)}.point.c5{fill:var(--c5)}.point.c6{fill:var(--c6)}.point.c7{fill:var(--c7)}\n"
    ".dots.c0{stroke:var(--c0)}.dots.c1{stroke:var(--c1)}.dots.c2{stroke:var(--c2)}.dots.c3{stroke:var(--c3)}"
    ".dots.c4{stroke:var(--c4)}.dots.c5{stroke:var(--c5)}.dots.c6{stroke:var(--c6)}.dots.c7{stroke:var(--c7)}\n"
    ".keys{font-size:.82rem;color:var(--dim);margin:8px 0 0}.key{white-space:nowrap;margin-right:10px}"
    ".key::before{content:\"\";display:inline-block;width:9px;height:9px;border-radius:50%;margin-right:5px;"
    "background:var(--k)}.k0{--k:var(--c0)}.k1{--k:var(--c1)}.k2{--k:var(--c2)}.k3{--k:var(--c3)}.k4{--k:var(--c4)}"
    ".k5{--k:var(--c5)}.k6{--k:var(--c6)}.k7{--k:var(--c7)}\n"
    "figure.full{margin:6px 0 16px}.strip{height:36px;border-radius:8px;overflow:hidden}.part{fill:var(--soft);"
    "stroke:var(--bg);stroke-width:2}.part.on{fill:var(--c0)}\n"
    /* Heat: one hue, from the ground to full.  */
    ".heat path{fill:var(--c0)}.heat .h12{fill:var(--bad)}.h0{fill-opacity:.06}.h1{fill-opacity:.14}.h2{fill-opacity:.22}.h3{fill-opacity:.31}"
    ".h4{fill-opacity:.39}.h5{fill-opacity:.48}.h6{fill-opacity:.56}.h7{fill-opacity:.65}.h8{fill-opacity:.74}"
    ".h9{fill-opacity:.82}.h10{fill-opacity:.91}"
    ".ramp{display:inline-block;width:90px;height:10px;border-radius:5px;vertical-align:middle;"
    "background:linear-gradient(90deg,transparent,var(--c0));border:1px solid var(--line)}\n",

    "@media print{nav,.skip,.button,input,details{display:none}body{font-size:10.5pt}section{padding:14pt 0 0}"
    ".plot,.cards>div,tr{break-inside:avoid}h2,h3,caption{break-after:avoid}.scroll{overflow:visible}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere}table{font-size:8pt}th,td{padding:3pt 5pt}"
    "tbody th,td,td code,th code,.w{min-width:0}.n{white-space:normal}th,td{overflow-wrap:anywhere}thead{display:table-row-group}thead th,.mark{font-size:1em}.pair>.scroll{max-height:none}p{max-width:none}"
    ".plots,.pair{grid-template-columns:1fr 1fr}.scroll{break-before:avoid}"
    "th button::after{content:none}.verdict,.mark,.bar,.part,svg,.ramp,.cards>div{-webkit-print-color-adjust:exact;"
    "print-color-adjust:exact}}\n",
    NULL};

const char *const fp8q_page_script[] = {
    "\"use strict\";\n"
    "const value = cell => {\n"
    "  const v = cell && (cell.dataset.v ?? cell.textContent.replace(/,/g, \"\"));\n"
    "  const n = parseFloat(v);\n"
    "  return v === \"exact\" ? Infinity : isNaN(n) ? null : n;\n"
    "};\n"
    "function sort(table, column, numbers, down) {\n"
    "  const body = table.tBodies[0], sign = down ? -1 : 1;\n"
    "  const rows = Array.from(body.rows, row => [numbers ? value(row.cells[column])\n"
    "    : (row.cells[column]?.textContent ?? \"\"), row]);\n"
    "  rows.sort(([a], [b]) => a === b ? 0 : a === null ? 1 : b === null ? -1\n"
    "    : sign * (numbers ? a - b : a < b ? -1 : 1));\n"
    "  body.append(...rows.map(([, row]) => row));\n"
    "}\n",

    "for (const table of document.querySelectorAll(\"table\")) {\n"
    "  const heads = Array.from(table.tHead.rows[0].cells);\n"
    "  heads.forEach((head, column) => {\n"
    "    const button = document.createElement(\"button\");\n"
    "    button.type = \"button\";\n"
    "    button.append(...head.childNodes);\n"
    "    head.append(button);\n"
    "    button.onclick = () => {\n"
    "      const down = head.getAttribute(\"aria-sort\") === \"ascending\";\n"
    "      for (const other of heads) other.removeAttribute(\"aria-sort\");\n"
    "      head.setAttribute(\"aria-sort\", down ? \"descending\" : \"ascending\");\n"
    "      sort(table, column, head.classList.contains(\"n\"), down);\n"
    "    };\n"
    "  });\n"
    "  if (table.tBodies[0].rows.length < 30) continue;\n"
    "  const input = document.createElement(\"input\");\n"
    "  input.type = \"search\";\n"
    "  input.placeholder = \"Search\";\n"
    "  input.setAttribute(\"aria-label\", \"Search in \" + table.caption.textContent);\n"
    "  input.oninput = () => {\n"
    "    const words = input.value.toLowerCase().split(/\\s+/);\n"
    "    for (const row of table.tBodies[0].rows)\n"
    "      row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));\n"
    "  };\n"
    "  table.parentNode.before(input);\n"
    "}\n",

    "const save = document.createElement(\"button\");\n"
    "save.type = \"button\";\n"
    "save.className = \"button\";\n"
    "save.textContent = \"Download all figures (JSON)\";\n"
    "save.onclick = () => {\n"
    "  const link = document.createElement(\"a\");\n"
    "  const text = document.getElementById(\"data\").textContent;\n"
    "  link.href = URL.createObjectURL(new Blob([text], {type: \"application/json\"}));\n"
    "  link.download = \"fp8q-report.json\";\n"
    "  link.click();\n"
    "  URL.revokeObjectURL(link.href);\n"
    "};\n"
    "document.querySelector(\"header\").append(save);\n",
    NULL};
/* clang-format on */
