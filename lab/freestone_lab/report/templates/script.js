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
document.body.dataset.ready = 'yes';
