#!/usr/bin/env python3
"""Draws lines as SVG, without any package.

    plot.py TITLE X-LABEL Y-LABEL <points >plot.svg

Each input line is "series<TAB>x<TAB>y"; series keep the order of their first line.
"""
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 380, 64, 150, 44, 52
COLOURS = ["#0b6e4f", "#c0392b", "#2c6fbb", "#8e5ea2", "#b9770e"]


def nice_step(largest):
    step = 1.0
    while largest / step > 6:
        step *= 2.5 if str(step).strip("0.").startswith("2") else 2
    while largest / step < 3:
        step /= 2
    return step


def main(title, x_label, y_label):
    series = {}
    for line in sys.stdin:
        name, x, y = line.rstrip("\n").split("\t")
        series.setdefault(name, []).append((float(x), float(y)))
    x_max = max(x for points in series.values() for x, _ in points)
    y_max = max(y for points in series.values() for _, y in points) * 1.08
    px = lambda x: LEFT + x / x_max * (WIDTH - LEFT - RIGHT)
    py = lambda y: HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>']

    def ticks(largest, step):
        return [i * step for i in range(int(largest / step + 1e-9) + 1)]

    for y in ticks(y_max, nice_step(y_max)):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(y):.1f}" y2="{py(y):.1f}" '
                   'stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{py(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in ticks(x_max, nice_step(x_max)):
        out.append(f'<text x="{px(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
               f'{escape(x_label)}</text>'
               f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
               f'text-anchor="middle">{escape(y_label)}</text>')
    for i, (name, points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3.5" fill="{colour}"/>'
                for x, y in points]
        x, y = WIDTH - RIGHT + 16, TOP + 14 + 22 * i
        out.append(f'<rect x="{x}" y="{y - 9}" width="12" height="4" fill="{colour}"/>'
                   f'<text x="{x + 18}" y="{y}">{escape(name)}</text>')
    out.append("</svg>")
    print("\n".join(out))


if __name__ == "__main__":
    main(*sys.argv[1:4])
