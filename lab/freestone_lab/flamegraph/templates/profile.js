'use strict';
(function () {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId('data').textContent), dumps = data.profiles.length;
  const state = { type: data.start, dump: data.processes ? 0 : dumps - 1, tree: 0, base: data.compare && dumps > 1 ? 0 : -1, zoom: 0, search: '', sort: 'self' };
  const row = window.matchMedia('(max-width: 560px)').matches ? 26 : 22;
  let tree, count, children, totals;
  function use(number) {
    tree = data.trees[number]; count = tree.parents.length; totals = {}; state.zoom = 0;
    children = tree.parents.map(() => []);
    for (let i = 1; i < count; i++) { children[tree.parents[i]].push(i); }
  }

  // Sums of a value over each node and everything below it; parents stand before their children.
  function summed(own) {
    const sums = tree.parents.map((_, n) => Math.max(0, own(n)));
    for (let n = count - 1; n > 0; n--) { sums[tree.parents[n]] += sums[n]; }
    return sums;
  }
  function totalOf(dump, type) {
    const key = dump + ',' + type;
    if (!totals[key]) { totals[key] = summed((n) => tree.own[n][dump][type]); }
    return totals[key];
  }
  const frameOf = (n) => tree.frames[tree.idents[n]];
  function show(value, unit = data.types[state.type][1]) {
    const sign = value < 0 ? '-' : '';
    let v = Math.abs(value), s = 0;
    if (unit === 'bytes') {
      const steps = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
      while (v >= 1024 && s < steps.length - 1) { v /= 1024; s++; }
      return sign + (s === 0 || v >= 100 ? v.toFixed(0) : v.toFixed(1)) + ' ' + steps[s];
    }
    return sign + v.toLocaleString('en') + (unit === 'count' ? '' : ' ' + unit);
  }
  const percent = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(1) + ' %' : '0 %';
  const matches = (text) => state.search !== '' && text.toLowerCase().includes(state.search.toLowerCase());
  function element(tag, className, ...content) {
    const e = document.createElement(tag);
    if (className) { e.className = className; }
    e.append(...content);
    return e;
  }
  function button(className, text, click) {
    const b = element('button', className, text);
    b.type = 'button';
    if (click) { b.addEventListener('click', click); }
    return b;
  }
  function hue(text) {
    let h = 7;
    for (let c = 0; c < text.length; c++) { h = (h * 31 + text.charCodeAt(c)) % 3600; }
    return (h * 47) % 360;
  }
  function colour(n, now, before, largest) {
    if (before) {
      const change = now[n] - before[n], strength = largest > 0 ? 0.9 * Math.sqrt(Math.abs(change) / largest) : 0;
      if (change === 0) { return 'var(--soft)'; }
      return `rgba(var(--${change > 0 ? 'grow' : 'shrink'}), ${(0.1 + strength * 0.75).toFixed(3)})`;
    }
    if (n === 0) { return 'var(--soft)'; }
    const frame = frameOf(n), own = hue(frame[0]), family = hue(frame[1] || frame[0].split(/::|\./)[0]);
    return `hsl(${family + own % 56 - 28} var(--tone) calc(var(--flame) + ${own % 7 - 3}%))`;
  }
  function describe(n, now, before) {
    const frame = frameOf(n), place = frame[3] ? frame[3] + (frame[4] ? ':' + frame[4] : '') : '';
    const where = [place, frame[1] === frame[3] ? '' : frame[1]].filter(Boolean).join(' in ');
    let text = `${show(now[n])} (${percent(now[n], now[0])}), of it here ${show(tree.own[n][state.dump][state.type])}`;
    if (before) { text += `; before ${show(before[n])}, change ${show(now[n] - before[n])}`; }
    byId('detail').replaceChildren(element('b', '', frame[0] + (frame[2] ? ' (inlined)' : '')));
    if (where) { byId('detail').append(element('div', 'small', where)); }
    byId('detail').append(element('div', '', text));
  }

  const current = () => [totalOf(state.dump, state.type), state.base >= 0 ? totalOf(state.base, state.type) : null];
  function draw() {
    const flame = byId('flame'), width = flame.clientWidth, [now, before] = current(), nodes = [];
    const weights = before ? summed((n) => Math.max(tree.own[n][state.dump][state.type], tree.own[n][state.base][state.type])) : now;
    let depth = 0, largest = 0, matched = 0;
    if (before) { now.forEach((v, n) => { largest = Math.max(largest, Math.abs(v - before[n])); }); }
    function place(n, x, w, y, up) {
      const frame = frameOf(n), f = button('f', w > 34 ? frame[0] : '');
      f.style.left = x + 'px'; f.style.top = y * row + 'px'; f.style.width = Math.max(1, w - 1) + 'px';
      f.style.background = colour(n, now, before, largest);
      f.title = `${frame[0]}\n${show(now[n])} (${percent(now[n], now[0])})` + (before ? `\nbefore ${show(before[n])}` : '');
      f.dataset.node = n;
      if (w <= 34) { f.classList.add('thin'); f.tabIndex = -1; }
      if (up) { f.classList.add('up'); }
      if (frame[2]) { f.classList.add('inlined'); }
      if (matches(frame[0])) { f.classList.add('hit'); }
      nodes.push(f);
      depth = Math.max(depth, y + 1);
    }
    const path = [];
    for (let n = tree.parents[state.zoom]; n >= 0; n = tree.parents[n]) { path.unshift(n); }
    path.forEach((p, y) => place(p, 0, width, y, true));
    const queue = [[state.zoom, 0, width, path.length]];
    while (queue.length) {
      const [n, left, wide, y] = queue.pop();
      place(n, left, wide, y, false);
      if (weights[n] <= 0) { continue; }
      let x = left;
      [...children[n]].sort((a, b) => weights[b] - weights[a]).forEach((c) => {
        const w = wide * weights[c] / weights[n];
        if (w >= 0.7) { queue.push([c, x, w, y + 1]); }
        x += w;
      });
    }
    flame.replaceChildren(...nodes);
    flame.style.height = depth * row + 'px';
    flame.classList.toggle('searching', state.search !== '');
    for (const waiting = state.search ? [0] : []; waiting.length;) {
      const n = waiting.pop();
      if (matches(frameOf(n)[0])) { matched += now[n]; } else { waiting.push(...children[n]); }
    }
    byId('matched').textContent = state.search ? `matched ${show(matched)}, ${percent(matched, now[0])}` : '';
    byId('reset').disabled = state.zoom === 0;
    byId('key').hidden = !before;
    byId('empty').hidden = now[0] > 0 || (before && before[0] > 0);
    let text = `${data.profiles[state.dump].label}: ${show(now[0])}`;
    if (before) { text += `; ${data.profiles[state.base].label}: ${show(before[0])}; change ${show(now[0] - before[0])}`; }
    byId('sum').textContent = text;
    byId('notes').textContent = data.profiles[state.dump].notes.join('; ');
    describe(state.zoom, now, before);
    table(now, before);
    timeline();
  }

  // A function's total counts each stack once, however often the function calls itself.
  function gather(dump, type) {
    const self = {}, whole = {}, open = {}, now = totalOf(dump, type), stack = [[0, false]];
    while (stack.length) {
      const [n, left] = stack.pop(), f = tree.idents[n];
      if (left) { open[f]--; continue; }
      self[f] = (self[f] || 0) + tree.own[n][dump][type];
      if (!open[f]) { whole[f] = (whole[f] || 0) + now[n]; }
      open[f] = (open[f] || 0) + 1;
      stack.push([n, true], ...children[n].map((c) => [c, false]));
    }
    return { self, whole };
  }
  // Blocks for bytes and bytes for blocks: alloc_space goes with alloc_objects.
  function companion() {
    const [name, unit] = data.types[state.type], stem = name.split('_')[0];
    return data.types.findIndex((t) => t[0].split('_')[0] === stem && t[1] !== unit);
  }
  const amount = (value, unit) => show(value, unit) + (unit !== 'count' ? '' : value === 1 ? ' block' : ' blocks');
  function table(now, before) {
    const a = gather(state.dump, state.type), b = before ? gather(state.base, state.type) : null;
    const other = companion(), counts = other >= 0 ? gather(state.dump, other) : null;
    const rows = Object.keys(a.whole).filter((f) => f !== '0').map((f) => ({
      id: f, frame: tree.frames[f], self: a.self[f], total: a.whole[f], change: b ? a.whole[f] - (b.whole[f] || 0) : 0,
    })).filter((r) => (!state.search || matches(r.frame[0])) && (r.total > 0 || r.change !== 0));
    rows.sort((x, y) => {
      const p = state.sort === 'change' ? Math.abs(y.change) - Math.abs(x.change) : y[state.sort] - x[state.sort];
      return p || y.total - x.total || (x.frame[0] < y.frame[0] ? -1 : 1);
    });
    const shown = rows.slice(0, 100);
    byId('top').replaceChildren(...shown.map((r) => {
      const search = () => { byId('search').value = state.search = r.frame[0]; draw(); };
      const cell = element('td', '', button('', r.frame[0], search));
      if (r.frame[3]) { cell.append(element('small', '', r.frame[3].split('/').slice(-2).join('/') + (r.frame[4] ? ':' + r.frame[4] : ''))); }
      const tr = element('tr', '', cell);
      [[r.self, counts && counts.self], [r.total, counts && counts.whole]].forEach(([value, blocks]) => {
        const td = element('td', '', show(value), element('small', '', percent(value, now[0])));
        if (blocks) { td.append(element('small', '', amount(blocks[r.id] || 0, data.types[other][1]))); }
        tr.append(td);
      });
      if (b) { tr.append(element('td', r.change > 0 ? 'grow' : r.change < 0 ? 'shrink' : '', (r.change > 0 ? '+' : '') + show(r.change))); }
      return tr;
    }));
    byId('more').textContent = rows.length > shown.length ? `The first ${shown.length} of ${rows.length} functions.` : '';
    byId('change-head').hidden = !b;
    document.querySelectorAll('th button').forEach((s) => s.setAttribute('aria-pressed', String(s.dataset.sort === state.sort)));
  }
  function timeline() {
    const box = byId('timeline');
    if (dumps < (data.processes ? 2 : 3)) { byId('timeline-card').hidden = true; return; }
    const sums = data.profiles.map((_, p) => totalOf(p, state.type)[0]), most = Math.max(0, ...sums);
    byId('most').textContent = data.processes ? `The ${dumps} processes; tap one to see its profile`
      : `Total over time, the highest ${show(most)}; tap a bar to see that profile`;
    box.className = data.processes ? 'processes' : 'timeline';
    box.replaceChildren(...sums.map((v, p) => {
      const choose = () => { state.dump = p; if (data.processes) { state.zoom = 0; } byId('dump').value = String(p); draw(); };
      const bar = button((p === state.dump ? 'on' : '') + (p === state.base ? ' base' : ''), '', choose);
      const share = (most ? Math.max(3, 100 * v / most) : 3) + '%';
      bar.title = `${data.profiles[p].label}: ${show(v)}`;
      if (data.processes) {
        bar.style.backgroundSize = share;
        bar.append(element('b', '', show(v)), data.profiles[p].label);
      } else { bar.style.height = share; }
      bar.setAttribute('aria-label', bar.title);
      return bar;
    }));
  }

  function options(id, values, chosen) {
    byId(id).append(...values.map((text, n) => new Option(text, n)));
    byId(id).value = String(chosen);
  }
  const labels = data.profiles.map((p) => p.label);
  options('type', data.types.map((t) => t[0].replace(/_/g, ' ') + ' (' + t[1] + ')'), state.type);
  options('tree', data.trees.map((t) => t.name), 0);
  options('dump', labels, state.dump);
  byId('base').append(new Option('nothing', -1));
  options('base', labels, state.base);
  byId('tree').parentNode.hidden = data.trees.length < 2;
  byId('dump').parentNode.hidden = dumps < 2 || data.processes;
  byId('base').parentNode.hidden = dumps < 2;
  if (state.base >= 0) { state.sort = 'change'; }
  ['type', 'tree', 'dump', 'base'].forEach((id) => byId(id).addEventListener('change', (e) => {
    state[id] = Number(e.target.value);
    if (id === 'tree') { use(state.tree); }
    if (id === 'base') { state.sort = state.base >= 0 ? 'change' : 'self'; }
    draw();
  }));
  byId('search').addEventListener('input', (e) => { state.search = e.target.value.trim(); draw(); });
  const unzoom = () => { state.zoom = 0; draw(); };
  byId('reset').addEventListener('click', unzoom);
  document.addEventListener('keydown', (e) => { if (e.key === 'Escape') { unzoom(); } });
  byId('flame').addEventListener('click', (e) => {
    if (e.target.dataset.node !== undefined) { state.zoom = Number(e.target.dataset.node); draw(); }
  });
  byId('flame').addEventListener('mouseover', (e) => {
    if (e.target.dataset.node !== undefined) { describe(Number(e.target.dataset.node), ...current()); }
  });
  document.querySelectorAll('th button').forEach((s) => s.addEventListener('click', () => { state.sort = s.dataset.sort; draw(); }));
  window.addEventListener('resize', draw);
  use(0);
  draw();
  document.body.dataset.ready = 'yes';
}());
