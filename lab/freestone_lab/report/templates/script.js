'use strict';
// Tapping a name in a legend keeps only its curves in view; tapping again shows all.
document.querySelectorAll('figure').forEach(function (figure) {
  var chips = figure.querySelectorAll('.chip');
  chips.forEach(function (chip) {
    chip.addEventListener('click', function () {
      var on = chip.getAttribute('aria-pressed') !== 'true';
      chips.forEach(function (c) { c.setAttribute('aria-pressed', 'false'); });
      chip.setAttribute('aria-pressed', String(on));
      figure.classList.toggle('dim', on);
      figure.querySelectorAll('.p').forEach(function (p) {
        p.classList.toggle('on', p.classList.contains('p' + chip.dataset.slot));
      });
    });
  });
});

// The scorecard: totals, order and flips follow the sliders. The sums are those of scorecard.py.
document.querySelectorAll('.scorecard').forEach(function (card) {
  var data = JSON.parse(card.querySelector('script[type="application/json"]').textContent);
  var inputs = card.querySelectorAll('input[type=range]');
  if (!inputs.length) { return; }
  var weights = Object.assign({}, data.weights);

  function total(name) {
    var sum = 0, all = 0;
    data.criteria.forEach(function (c) { sum += weights[c] * data.rows[name][c]; all += weights[c]; });
    return all ? sum / all : 0;
  }
  function flips(winner) {
    var found = [];
    data.criteria.forEach(function (c) {
      var nearest = {};
      Object.keys(data.rows).forEach(function (rival) {
        if (rival === winner) { return; }
        var slope = data.rows[winner][c] - data.rows[rival][c], rest = 0;
        data.criteria.forEach(function (o) {
          if (o !== c) { rest += weights[o] * (data.rows[winner][o] - data.rows[rival][o]); }
        });
        if (slope === 0) { return; }
        var at = -rest / slope, up = at > weights[c];
        if (at < 0 || (slope > 0) === up) { return; }
        if (!(up in nearest) || Math.abs(at - weights[c]) < Math.abs(nearest[up].at - weights[c])) {
          nearest[up] = { at: at, rival: rival };
        }
      });
      [false, true].forEach(function (up) {
        if (up in nearest) {
          found.push(data.titles[c] + (up ? ' above ' : ' below ') + nearest[up].at.toFixed(2) + ': ' + nearest[up].rival);
        }
      });
    });
    return found;
  }
  function update() {
    inputs.forEach(function (input) {
      weights[input.name] = Number(input.value);
      card.querySelector('output[data-for="' + input.name + '"]').textContent = Number(input.value).toFixed(2);
    });
    var totals = {}, body = card.querySelector('tbody');
    Object.keys(data.rows).forEach(function (name) { totals[name] = total(name); });
    var order = Object.keys(totals).sort(function (a, b) { return totals[b] - totals[a] || (a < b ? -1 : 1); });
    order.forEach(function (name) {
      var row = Array.prototype.find.call(body.rows, function (r) { return r.dataset.peer === name; });
      row.querySelector('.total').textContent = totals[name].toFixed(2);
      row.querySelector('.bar i').style.width = (totals[name] * 20).toFixed(1) + '%';
      body.appendChild(row);
    });
    card.dataset.ready = 'yes';
    var winner = card.querySelector('.winner');
    if (!winner) { return; }  // the page names none
    winner.textContent = order[0];
    var list = card.querySelector('.flips');
    list.textContent = '';
    var lines = flips(order[0]);
    (lines.length ? lines : ['No single weight changes the winner.']).forEach(function (line) {
      var item = document.createElement('li');
      item.textContent = line;
      list.appendChild(item);
    });
  }
  inputs.forEach(function (input) { input.addEventListener('input', update); });
  update();
});
