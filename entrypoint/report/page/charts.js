'use strict';
// Drawing, which knows nothing of jobs: elements, line charts, bars, lanes of spans.

const SVG = 'http://www.w3.org/2000/svg';

/** An element; what is text stays text, whatever it holds. */
function make(tag, attributes = {}, ...children) {
  const isSvg = ['svg', 'g', 'rect', 'line', 'path', 'circle', 'text', 'title'].includes(tag);
  const element = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);

/** Three digits: 12.3, 0.00123, 1,230. */
function digits(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2);
  return size >= 100 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)));
}

function bytes(value) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${digits(value)} ${units[unit]}`;
}

/** Round numbers between two, about so many. */
function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
    found.push(Number(value.toPrecision(12)));
  }
  return found;
}

function legend(entries) {
  return make('div', { class: 'legend' }, ...entries.map(([name, paint]) =>
    make('span', {}, make('i', { style: `background:${paint}` }), name)));
}

/**
 * Lines over a common axis. Each of `lines` is {name, paint, points: [[x, y, top?], …]}; a band goes
 * up to `top`. Dragging zooms, a double click shows all again. `marks` are [x, text].
 */
function lineChart({ lines, marks = [], xName, yName, format = digits, fromZero = true }) {
  const [width, height, left, right, top, bottom] = [1000, 240, 74, 12, 12, 34];
  const frame = make('div', { class: 'plot' });
  const everything = lines.flatMap((line) => line.points.map((point) => point[0]));
  const whole = [Math.min(...everything), Math.max(...everything)];
  let shown = [...whole];
  const tip = make('div', { class: 'tip', hidden: '' });

  function draw() {
    const inside = lines.map((line) =>
      line.points.filter((point) => point[0] >= shown[0] && point[0] <= shown[1]));
    const values = inside.flatMap((points) =>
      points.flatMap((point) => [point[1], point[2] ?? point[1]])).filter((y) => y !== null);
    let [low, high] = [Math.min(...values), Math.max(...values)];
    if (fromZero) low = Math.min(0, low);
    if (!(high > low)) { high = low + (Math.abs(low) || 1); }
    const x = (v) => left + (v - shown[0]) / ((shown[1] - shown[0]) || 1) * (width - left - right);
    const y = (v) => height - bottom - (v - low) / (high - low) * (height - top - bottom);
    const svg = make('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img',
      'aria-label': `${yName} over ${xName}` });
    for (const tick of ticks(low, high, 4)) {
      svg.append(
        make('line', { class: 'axis', x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
        make('text', { class: 'quiet', x: left - 6, y: y(tick) + 4, 'text-anchor': 'end' },
          format(tick)));
    }
    for (const tick of ticks(shown[0], shown[1], 8)) {
      svg.append(make('text', { class: 'quiet', x: x(tick), y: height - bottom + 16,
        'text-anchor': 'middle' }, digits(tick)));
    }
    svg.append(
      make('text', { class: 'quiet', x: width - right, y: height - 4, 'text-anchor': 'end' }, xName),
      make('text', { class: 'quiet', x: 4, y: height - 4 }, yName));
    for (const [at, text] of marks) {
      if (at < shown[0] || at > shown[1]) continue;
      svg.append(make('line', { x1: x(at), x2: x(at), y1: top, y2: height - bottom,
        stroke: color('bad'), 'stroke-dasharray': '3 3' }, make('title', {}, text)));
    }
    lines.forEach((line, number) => {
      const points = inside[number].filter((point) => point[1] !== null);
      if (points.some((point) => point[2] !== undefined)) {
        const upper = points.map((point) => `${x(point[0])},${y(point[2] ?? point[1])}`);
        const lower = points.map((point) => `${x(point[0])},${y(point[1])}`).reverse();
        svg.append(make('path', { d: `M${[...upper, ...lower].join('L')}Z`, fill: line.paint,
          opacity: 0.18 }));
      }
      svg.append(make('path', { d: `M${points.map((p) => `${x(p[0])},${y(p[1])}`).join('L')}`,
        fill: 'none', stroke: line.paint, 'stroke-width': 1.5 }));
    });
    frame.replaceChildren(svg, tip);

    const at = (event) => {
      const box = svg.getBoundingClientRect();
      const part = ((event.clientX - box.left) / box.width * width - left) / (width - left - right);
      return shown[0] + Math.min(1, Math.max(0, part)) * (shown[1] - shown[0]);
    };
    let from = null;
    svg.onpointerdown = (event) => { from = at(event); };
    svg.onpointerup = (event) => {
      const to = at(event);
      if (from !== null && Math.abs(to - from) > (shown[1] - shown[0]) / 100) {
        shown = [Math.min(from, to), Math.max(from, to)];
        draw();
      }
      from = null;
    };
    svg.ondblclick = () => { shown = [...whole]; draw(); };
    svg.onpointerleave = () => { tip.hidden = true; };
    svg.onpointermove = (event) => {
      const here = at(event);
      const texts = [];
      lines.forEach((line, number) => {
        const nearest = inside[number].reduce((best, point) =>
          best && Math.abs(best[0] - here) <= Math.abs(point[0] - here) ? best : point, null);
        if (nearest) texts.push([nearest[0], `${line.name}: ${format(nearest[1])}`]);
      });
      if (texts.length === 0) return;
      tip.textContent = [`${xName} ${digits(texts[0][0])}`, ...texts.map((t) => t[1])].join('\n');
      tip.hidden = false;
      placeTip(tip, frame, event);
    };
  }
  draw();
  redraws.push(draw);
  return frame;
}

/** Points `[x, y, paint, text]`, the y axis logarithmic; a line joins the points of `front`. */
function scatter({ points, front, xName, yName, format }) {
  const [width, height, left, right, top, bottom] = [1000, 320, 74, 24, 14, 34];
  const most = Math.max(...points.map((point) => point[0])) * 1.05;
  const [low, high] = [Math.min, Math.max].map((end) => Math.log(end(...points.map((p) => p[1]))));
  const x = (v) => left + v / most * (width - left - right);
  const y = (v) => height - bottom - (Math.log(v) - low) / ((high - low) || 1) * (height - top - bottom - 8);
  const svg = make('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img',
    'aria-label': `${yName} over ${xName}` });
  for (const tick of ticks(0, most, 8)) {
    svg.append(make('text', { class: 'quiet', x: x(tick), y: height - bottom + 16,
      'text-anchor': 'middle' }, format(tick)));
  }
  for (const value of [Math.exp(low), Math.exp(high)]) {
    svg.append(make('line', { class: 'axis', x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      make('text', { class: 'quiet', x: left - 6, y: y(value) + 4, 'text-anchor': 'end' }, digits(value)));
  }
  svg.append(
    make('text', { class: 'quiet', x: width - right, y: height - 4, 'text-anchor': 'end' }, xName),
    make('text', { class: 'quiet', x: 4, y: height - 4 }, yName),
    make('path', { d: `M${front.map((p) => `${x(p[0])},${y(p[1])}`).join('L')}`, fill: 'none',
      stroke: color('compute'), 'stroke-width': 1.5 }));
  for (const [at, value, paint, text] of [...points].reverse()) {  // the first one is never hidden
    svg.append(make('circle', { cx: x(at), cy: y(value), r: 4, fill: paint }, make('title', {}, text)));
  }
  return make('div', { class: 'plot' }, svg);
}

function placeTip(tip, frame, event) {
  const box = frame.getBoundingClientRect();
  const left = event.clientX - box.left + 14;
  tip.style.left = `${left + tip.offsetWidth > box.width ? left - tip.offsetWidth - 28 : left}px`;
  tip.style.top = `${event.clientY - box.top + 10}px`;
}

/** Rows of shares: {name, parts: [[name, paint, share], …], text}. */
function shareBars(rows) {
  const [width, height, left, right] = [1000, 22, 150, 120];
  const svg = make('svg', { viewBox: `0 0 ${width} ${rows.length * height + 6}`, role: 'img' });
  rows.forEach((row, number) => {
    const y = number * height + 4;
    svg.append(make('text', { x: 6, y: y + 13 }, row.name));
    let x = left;
    for (const [name, paint, share] of row.parts) {
      const length = share * (width - left - right);
      svg.append(make('rect', { x, y, width: Math.max(0, length), height: height - 5, fill: paint },
        make('title', {}, `${name}: ${digits(100 * share)} %`)));
      x += length;
    }
    svg.append(make('text', { class: 'quiet', x: width - right + 8, y: y + 13 }, row.text));
  });
  return make('div', { class: 'plot' }, svg);
}

/**
 * Lanes of spans on a canvas: rows {name, spans: [[begin, duration, paint, text], …]} in time units
 * named `unit`. The wheel zooms, dragging moves, a double click shows all.
 */
function laneChart(rows, end, unit) {
  const [rowHeight, left, bottom] = [24, 130, 24];
  const canvas = make('canvas', { role: 'img', 'aria-label': 'what ranks did when' });
  const tip = make('div', { class: 'tip', hidden: '' });
  const frame = make('div', { class: 'plot' }, canvas, tip);
  let view = [0, end];

  function draw() {
    const width = frame.clientWidth || 1000;
    const height = rows.length * rowHeight + bottom;
    const scale = window.devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext('2d');
    context.scale(scale, scale);
    context.font = '12px system-ui, sans-serif';
    const x = (v) => left + (v - view[0]) / (view[1] - view[0]) * (width - left - 8);
    for (const tick of ticks(view[0], view[1], 8)) {
      context.fillStyle = color('line');
      context.fillRect(x(tick), 0, 1, height - bottom);
      context.fillStyle = color('quiet');
      const label = `${digits(tick)} ${unit}`;
      const last = width - 2 - context.measureText(label).width;  // where it still fits
      context.fillText(label, Math.min(x(tick) + 3, last), height - 8);
    }
    rows.forEach((row, number) => {
      const y = number * rowHeight + 3;
      for (const [begin, duration, paint] of row.spans) {
        const [from, to] = [Math.max(left, x(begin)), Math.min(width - 8, x(begin + duration))];
        if (to < left || from > width - 8) continue;
        context.fillStyle = paint;
        context.fillRect(from, y, Math.max(0.6, to - from - 0.3), rowHeight - 6);
      }
      context.fillStyle = color('text');
      context.fillText(row.name, 6, y + 13);
    });
  }
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return view[0] + (event.clientX - box.left - left) / (box.width - left - 8) * (view[1] - view[0]);
  };
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    const here = at(event);
    const factor = event.deltaY > 0 ? 1.25 : 0.8;
    const size = Math.min(end, (view[1] - view[0]) * factor);
    const begin = Math.max(0, here - (here - view[0]) / (view[1] - view[0]) * size);
    view = [Math.min(begin, end - size), Math.min(begin, end - size) + size];
    draw();
  }, { passive: false });
  let held = null;
  canvas.onpointerdown = (event) => { held = at(event); canvas.setPointerCapture(event.pointerId); };
  canvas.onpointerup = () => { held = null; };
  canvas.ondblclick = () => { view = [0, end]; draw(); };
  canvas.onpointerleave = () => { tip.hidden = true; };
  canvas.onpointermove = (event) => {
    const here = at(event);
    if (held !== null) {
      const size = view[1] - view[0];
      const begin = Math.min(end - size, Math.max(0, view[0] + held - here));
      view = [begin, begin + size];
      draw();
      return;
    }
    const box = canvas.getBoundingClientRect();
    const row = rows[Math.floor((event.clientY - box.top) / rowHeight)];
    const span = row && row.spans.find((s) => here >= s[0] && here <= s[0] + s[1]);
    tip.hidden = !span;
    if (!span) return;
    tip.textContent = `${row.name}\n${span[3]}\n${digits(span[1])} ${unit}`;
    placeTip(tip, frame, event);
  };
  requestAnimationFrame(draw);
  redraws.push(draw);
  return frame;
}

/** What is to be drawn again when colours or the width change. */
const redraws = [];
const redrawAll = () => redraws.forEach((draw) => draw());
window.addEventListener('resize', redrawAll);
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => location.reload());

/**
 * Amounts from `names[row]` to `names[column]`, the darker the more. `cells` are [row, column, amount,
 * paint, text for the pointer].
 */
function matrix(names, cells) {
  const left = 70;
  const size = Math.max(8, Math.min(34, 560 / names.length));
  const side = left + size * names.length;
  const every = Math.ceil(16 / size);  // so that names do not cover each other
  const svg = make('svg', { viewBox: `0 0 ${side} ${side - left + 24}`,
    style: `width:${side}px;max-width:100%` });
  const most = Math.max(...cells.map((cell) => cell[2]));
  names.forEach((name, number) => {
    if (number % every !== 0) return;
    const middle = size * (number + 0.5);
    svg.append(
      make('text', { class: 'quiet', x: left - 6, y: 24 + middle + 4, 'text-anchor': 'end' }, name),
      make('text', { class: 'quiet', x: left + middle, y: 15, 'text-anchor': 'middle' },
        String(number)));
  });
  for (const [row, column, amount, paint, text] of cells) {
    svg.append(make('rect', { x: left + size * column, y: 24 + size * row, width: size - 1,
      height: size - 1, fill: paint, 'fill-opacity': 0.15 + 0.85 * amount / most },
    make('title', {}, text)));
  }
  return make('div', { class: 'plot' }, svg);
}
