'use strict';
(function () {
  var data = JSON.parse(document.getElementById('data').textContent);
  var dumps = data.profiles.length, tree, count, children, totals;
  var byId = function (id) { return document.getElementById(id); };
  var state = { type: data.start, dump: data.processes ? 0 : dumps - 1, tree: 0, base: data.compare && dumps > 1 ? 0 : -1, zoom: 0, search: '', sort: 'self' };
  var weights, row = window.matchMedia('(max-width: 560px)').matches ? 26 : 22;
  function use(number) {
    tree = data.trees[number]; count = tree.parents.length; children = []; totals = {}; state.zoom = 0;
    for (var i = 0; i < count; i++) { children.push([]); }
    for (i = 1; i < count; i++) { children[tree.parents[i]].push(i); }
  }

  // Sums of a value over each node and everything below it; parents stand before their children.
  function summed(own) {
    var sums = new Array(count);
    for (var n = 0; n < count; n++) { sums[n] = Math.max(0, own(n)); }
    for (n = count - 1; n > 0; n--) { sums[tree.parents[n]] += sums[n]; }
    return sums;
  }
  function totalOf(dump, type) {
    var key = dump + ',' + type;
    if (!totals[key]) { totals[key] = summed(function (n) { return tree.own[n][dump][type]; }); }
    return totals[key];
  }
  function name(n) { return tree.frames[tree.idents[n]][0]; }
  function show(value, unit) {
    var sign = value < 0 ? '-' : '', v = Math.abs(value);
    if (unit === 'bytes') {
      var steps = ['B', 'KiB', 'MiB', 'GiB', 'TiB'], s = 0;
      while (v >= 1024 && s < steps.length - 1) { v /= 1024; s++; }
      return sign + (s === 0 || v >= 100 ? v.toFixed(0) : v.toFixed(1)) + ' ' + steps[s];
    }
    return sign + v.toLocaleString('en') + (unit === 'count' ? '' : ' ' + unit);
  }
  function percent(part, whole) { return whole > 0 ? (100 * part / whole).toFixed(1) + ' %' : '0 %'; }
  function matches(text) { return state.search !== '' && text.toLowerCase().indexOf(state.search.toLowerCase()) >= 0; }
  function element(tag, className, text) {
    var e = document.createElement(tag);
    if (className) { e.className = className; }
    if (text !== undefined) { e.textContent = text; }
    return e;
  }
  function hue(text) {
    var h = 7;
    for (var c = 0; c < text.length; c++) { h = (h * 31 + text.charCodeAt(c)) % 3600; }
    return (h * 47) % 360;
  }
  function colour(n, now, before, largest) {
    if (before) {
      var change = now[n] - before[n];
      var strength = largest > 0 ? 0.9 * Math.sqrt(Math.abs(change) / largest) : 0;
      if (change === 0) { return 'var(--soft)'; }
      return 'rgba(var(--' + (change > 0 ? 'grow' : 'shrink') + '), ' + (0.1 + strength * 0.75).toFixed(3) + ')';
    }
    var frame = tree.frames[tree.idents[n]];
    if (n === 0) { return 'var(--soft)'; }
    var family = frame[1] || frame[0].split(/::|\./)[0];
    return 'hsl(' + (hue(family) + hue(frame[0]) % 56 - 28) + ' var(--tone) calc(var(--flame) + ' + (hue(frame[0]) % 7 - 3) + '%))';
  }
  function describe(n, now, before) {
    var unit = data.types[state.type][1], frame = tree.frames[tree.idents[n]], box = byId('detail');
    box.textContent = '';
    box.appendChild(element('b', '', frame[0] + (frame[2] ? ' (inlined)' : '')));
    var where = [frame[3] ? frame[3] + (frame[4] ? ':' + frame[4] : '') : '', frame[1] === frame[3] ? '' : frame[1]].filter(Boolean).join(' in ');
    if (where) { box.appendChild(element('div', 'small', where)); }
    var own = tree.own[n][state.dump][state.type];
    var text = show(now[n], unit) + ' (' + percent(now[n], now[0]) + '), of it here ' + show(own, unit);
    if (before) { text += '; before ' + show(before[n], unit) + ', change ' + show(now[n] - before[n], unit); }
    box.appendChild(element('div', '', text));
  }

  function draw() {
    var flame = byId('flame'), width = flame.clientWidth, now = totalOf(state.dump, state.type);
    var before = state.base >= 0 ? totalOf(state.base, state.type) : null, depth = 0, largest = 0;
    weights = before ? summed(function (n) {
      return Math.max(tree.own[n][state.dump][state.type], tree.own[n][state.base][state.type]);
    }) : now;
    if (before) { for (var n = 0; n < count; n++) { largest = Math.max(largest, Math.abs(now[n] - before[n])); } }
    flame.textContent = '';
    var nodes = document.createDocumentFragment(), matched = 0;
    function place(n, x, w, y, up) {
      var frame = tree.frames[tree.idents[n]], f = element('button', 'f', w > 34 ? frame[0] : '');
      f.type = 'button';
      f.style.left = x + 'px'; f.style.top = y * row + 'px'; f.style.width = Math.max(1, w - 1) + 'px';
      f.style.background = colour(n, now, before, largest);
      f.title = frame[0] + '\n' + show(now[n], data.types[state.type][1]) + ' (' + percent(now[n], now[0]) + ')' +
        (before ? '\nbefore ' + show(before[n], data.types[state.type][1]) : '');
      f.dataset.node = n;
      if (w <= 34) { f.classList.add('thin'); f.tabIndex = -1; }
      if (up) { f.classList.add('up'); }
      if (frame[2]) { f.classList.add('inlined'); }
      if (matches(frame[0])) { f.classList.add('hit'); }
      nodes.appendChild(f);
      depth = Math.max(depth, y + 1);
    }
    var path = [];
    for (n = tree.parents[state.zoom]; n >= 0; n = tree.parents[n]) { path.unshift(n); }
    path.forEach(function (p, y) { place(p, 0, width, y, true); });
    var queue = [[state.zoom, 0, width, path.length]];
    while (queue.length) {
      var item = queue.pop();
      place(item[0], item[1], item[2], item[3], false);
      var x = item[1], whole = weights[item[0]];
      if (whole <= 0) { continue; }
      children[item[0]].slice().sort(function (a, b) { return weights[b] - weights[a]; }).forEach(function (c) {
        var w = item[2] * weights[c] / whole;
        if (w >= 0.7) { queue.push([c, x, w, item[3] + 1]); }
        x += w;
      });
    }
    flame.appendChild(nodes);
    flame.style.height = depth * row + 'px';
    flame.classList.toggle('searching', state.search !== '');
    if (state.search) {
      var waiting = [0];
      while (waiting.length) {
        n = waiting.pop();
        if (matches(name(n))) { matched += now[n]; } else { Array.prototype.push.apply(waiting, children[n]); }
      }
      byId('matched').textContent = 'matched ' + show(matched, data.types[state.type][1]) + ', ' + percent(matched, now[0]);
    } else { byId('matched').textContent = ''; }
    byId('reset').disabled = state.zoom === 0;
    byId('key').hidden = !before;
    byId('empty').hidden = now[0] > 0 || (before && before[0] > 0);
    var text = data.profiles[state.dump].label + ': ' + show(now[0], data.types[state.type][1]);
    if (before) { text += '; ' + data.profiles[state.base].label + ': ' + show(before[0], data.types[state.type][1]) + '; change ' + show(now[0] - before[0], data.types[state.type][1]); }
    byId('sum').textContent = text;
    byId('notes').textContent = data.profiles[state.dump].notes.join('; ');
    describe(state.zoom, now, before);
    table(now, before);
    timeline();
  }

  // A function's total counts each stack once, however often the function calls itself.
  function gather(dump, type) {
    var self = {}, whole = {}, now = totalOf(dump, type), open = {}, stack = [[0, false]];
    while (stack.length) {
      var item = stack.pop(), n = item[0], f = tree.idents[n];
      if (item[1]) { open[f]--; continue; }
      self[f] = (self[f] || 0) + tree.own[n][dump][type];
      if (!open[f]) { whole[f] = (whole[f] || 0) + now[n]; }
      open[f] = (open[f] || 0) + 1;
      stack.push([n, true]);
      children[n].forEach(function (c) { stack.push([c, false]); });
    }
    return { self: self, whole: whole };
  }
  // Blocks for bytes and bytes for blocks: alloc_space goes with alloc_objects.
  function companion() {
    var stem = data.types[state.type][0].split('_')[0], unit = data.types[state.type][1];
    for (var t = 0; t < data.types.length; t++) {
      if (data.types[t][0].split('_')[0] === stem && data.types[t][1] !== unit) { return t; }
    }
    return -1;
  }
  function amount(value, type) {
    return data.types[type][1] === 'count' ? show(value, 'count') + (value === 1 ? ' block' : ' blocks') : show(value, data.types[type][1]);
  }
  function table(now, before) {
    var unit = data.types[state.type][1], a = gather(state.dump, state.type), b = before ? gather(state.base, state.type) : null;
    var other = companion(), counts = other >= 0 ? gather(state.dump, other) : null;
    var rows = Object.keys(a.whole).filter(function (f) { return f !== '0'; }).map(function (f) {
      return { id: f, frame: tree.frames[f], self: a.self[f], total: a.whole[f], change: b ? a.whole[f] - (b.whole[f] || 0) : 0, selfChange: b ? a.self[f] - (b.self[f] || 0) : 0 };
    }).filter(function (r) {
      return (!state.search || matches(r.frame[0])) && (r.total > 0 || r.change !== 0);
    });
    rows.sort(function (x, y) {
      var p = state.sort === 'change' ? Math.abs(y.change) - Math.abs(x.change) : y[state.sort] - x[state.sort];
      return p || y.total - x.total || (x.frame[0] < y.frame[0] ? -1 : 1);
    });
    var shown = rows.slice(0, 100), body = byId('top');
    body.textContent = '';
    shown.forEach(function (r) {
      var tr = element('tr'), cell = element('td'), link = element('button', '', r.frame[0]);
      link.type = 'button';
      link.addEventListener('click', function () { byId('search').value = r.frame[0]; state.search = r.frame[0]; draw(); });
      cell.appendChild(link);
      if (r.frame[3]) { cell.appendChild(element('small', '', r.frame[3].split('/').slice(-2).join('/') + (r.frame[4] ? ':' + r.frame[4] : ''))); }
      tr.appendChild(cell);
      [[r.self, counts && counts.self], [r.total, counts && counts.whole]].forEach(function (v) {
        var td = element('td', '', show(v[0], unit));
        td.appendChild(element('small', '', percent(v[0], now[0])));
        if (v[1]) { td.appendChild(element('small', '', amount(v[1][r.id] || 0, other))); }
        tr.appendChild(td);
      });
      if (b) { tr.appendChild(element('td', r.change > 0 ? 'grow' : r.change < 0 ? 'shrink' : '', (r.change > 0 ? '+' : '') + show(r.change, unit))); }
      body.appendChild(tr);
    });
    byId('more').textContent = rows.length > shown.length ? 'The first ' + shown.length + ' of ' + rows.length + ' functions.' : '';
    byId('change-head').hidden = !b;
    document.querySelectorAll('th button').forEach(function (s) { s.setAttribute('aria-pressed', String(s.dataset.sort === state.sort)); });
  }
  function timeline() {
    var box = byId('timeline');
    if (dumps < (data.processes ? 2 : 3)) { byId('timeline-card').hidden = true; return; }
    var most = 0, sums = data.profiles.map(function (_, p) { return totalOf(p, state.type)[0]; });
    sums.forEach(function (v) { most = Math.max(most, v); });
    byId('most').textContent = data.processes ? 'The ' + dumps + ' processes; tap one to see its profile'
      : 'Total over time, the highest ' + show(most, data.types[state.type][1]) + '; tap a bar to see that profile';
    box.className = data.processes ? 'processes' : 'timeline';
    box.textContent = '';
    sums.forEach(function (v, p) {
      var bar = element('button', (p === state.dump ? 'on' : '') + (p === state.base ? ' base' : ''));
      bar.type = 'button';
      var share = (most ? Math.max(3, 100 * v / most) : 3) + '%', size = show(v, data.types[state.type][1]);
      bar.title = data.profiles[p].label + ': ' + size;
      if (data.processes) {
        bar.style.backgroundSize = share;
        bar.appendChild(element('b', '', size));
        bar.appendChild(document.createTextNode(data.profiles[p].label));
      } else { bar.style.height = share; }
      bar.setAttribute('aria-label', bar.title);
      bar.addEventListener('click', function () { state.dump = p; if (data.processes) { state.zoom = 0; } byId('dump').value = String(p); draw(); });
      box.appendChild(bar);
    });
  }

  function options(select, values, chosen) {
    values.forEach(function (v) {
      var o = element('option', '', v[1]);
      o.value = v[0];
      select.appendChild(o);
    });
    select.value = String(chosen);
  }
  var labels = data.profiles.map(function (p, n) { return [n, p.label]; });
  options(byId('type'), data.types.map(function (t, n) { return [n, t[0].replace(/_/g, ' ') + ' (' + t[1] + ')']; }), state.type);
  options(byId('tree'), data.trees.map(function (t, n) { return [n, t.name]; }), 0);
  options(byId('dump'), labels, state.dump);
  options(byId('base'), [[-1, 'nothing']].concat(labels), state.base);
  byId('tree').parentNode.hidden = data.trees.length < 2;
  byId('dump').parentNode.hidden = dumps < 2 || data.processes;
  byId('base').parentNode.hidden = dumps < 2;
  if (state.base >= 0) { state.sort = 'change'; }
  ['type', 'tree', 'dump', 'base'].forEach(function (id) {
    byId(id).addEventListener('change', function () {
      state[id] = Number(this.value);
      if (id === 'tree') { use(state.tree); }
      if (id === 'base') { state.sort = state.base >= 0 ? 'change' : 'self'; }
      draw();
    });
  });
  byId('search').addEventListener('input', function () { state.search = this.value.trim(); draw(); });
  byId('reset').addEventListener('click', function () { state.zoom = 0; draw(); });
  byId('flame').addEventListener('click', function (e) {
    var n = e.target.dataset.node;
    if (n !== undefined) { state.zoom = Number(n); draw(); }
  });
  byId('flame').addEventListener('mouseover', function (e) {
    var n = e.target.dataset.node;
    if (n !== undefined) { describe(Number(n), totalOf(state.dump, state.type), state.base >= 0 ? totalOf(state.base, state.type) : null); }
  });
  document.querySelectorAll('th button').forEach(function (s) {
    s.addEventListener('click', function () { state.sort = s.dataset.sort; draw(); });
  });
  window.addEventListener('resize', draw);
  document.addEventListener('keydown', function (e) { if (e.key === 'Escape') { state.zoom = 0; draw(); } });
  use(0);
  draw();
  document.body.dataset.ready = 'yes';
}());
