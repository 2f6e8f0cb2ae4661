'use strict';
// Optional: the page is readable without this script. It shows the cell under the pointer, moves through the map with
// the arrow keys, and copies commands.
(() => {
  const $ = s => document.querySelector(s), all = s => [...document.querySelectorAll(s)];
  const asked = new URLSearchParams(location.search);
  if (asked.get('theme')) document.documentElement.dataset.theme = asked.get('theme');
  const { words, nodes } = JSON.parse($('#data').textContent);
  const readout = $('#readout');
  readout.hidden = $('#hint').hidden = false;
  // Text of a model is set as text, never as markup.
  const field = (name, value, kind) => {
    const box = document.createElement('div'), label = document.createElement('span'), text = document.createElement('b');
    label.textContent = name;
    text.textContent = value;
    text.className = kind || '';
    if (!kind) text.style.fontWeight = '400';
    box.append(label, text);
    return box;
  };
  const read = cell => {
    const [name, op, weight, worst, share, total, expected, verdict, bad] = nodes[cell.dataset.i];
    const free = cell.closest('.strip').id === 'free';
    const fields = [
      field(free ? 'Node, free-running' : 'Node, isolated', name, 'mono'), field('Operator', words[op]),
      field('Weight', weight), field('Worst z', worst),
      field(free ? 'Error' : 'Over limit', free ? total : share), field('Expected', expected),
      field('Verdict', words[verdict], bad ? 'v-bad' : 'v')];
    if (cell.hasAttribute('href')) {
      const open = document.createElement('a');
      open.className = 'go';
      open.href = cell.getAttribute('href');
      open.textContent = 'Open';
      fields.push(open);
    } else fields.push(document.createElement('span'));
    for (const wide of [0, 2, 6]) fields[wide].classList.add('big');
    readout.replaceChildren(...fields);
  };
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  let last = null;
  for (const strip of all('.strip')) {
    const cells = [...strip.querySelectorAll('.cell')], at = new Map();
    const place = c => [+c.style.gridRowStart, +c.style.gridColumnStart];
    cells.forEach(c => at.set(place(c).join(), c));
    const rows = Math.max(...cells.map(c => place(c)[0])), columns = Math.max(...cells.map(c => place(c)[1]));
    const rove = c => { cells.forEach(o => { o.tabIndex = -1; }); c.tabIndex = 0; };
    const show = e => { const c = e.target.closest('.cell'); if (c) read(c); };
    strip.addEventListener('pointerover', show);
    strip.addEventListener('focusin', show);
    strip.addEventListener('click', e => { show(e); last = e.target.closest('.cell') || last; });
    strip.addEventListener('keydown', e => {
      const step = steps[e.key];
      if (!step) return;
      e.preventDefault();
      let [row, column] = place(e.target);
      while (row > 0 && row <= rows && column > 1 && column <= columns) {
        row += step[0];
        column += step[1];
        const next = at.get([row, column].join());
        if (next) { rove(next); next.focus(); return; }
      }
    });
    rove(strip.querySelector('[aria-current]') || cells[0]);
  }
  const shown = () => {
    const drawer = $('.drawer:target') || $('.drawer.first');
    all('.cell[aria-current]').forEach(c => c.removeAttribute('aria-current'));
    if (!drawer) return;
    all(`.cell[data-i="${drawer.id.slice(5)}"]`).forEach(c => c.setAttribute('aria-current', 'true'));
    const cell = $(`#isolated [data-i="${drawer.id.slice(5)}"]`);
    if (cell) read(cell);
  };
  addEventListener('hashchange', () => { shown(); const d = $('.drawer:target'); if (d) d.focus({ preventScroll: true }); });
  all('.drawer').forEach(d => d.addEventListener('keydown', e => { if (e.key === 'Escape' && last) last.focus(); }));
  shown();
  for (const button of all('.copy')) {
    button.hidden = false;
    button.addEventListener('click', () => {
      const source = document.getElementById(button.dataset.c);
      const done = () => { button.textContent = 'Copied'; setTimeout(() => { button.textContent = 'Copy'; }, 1500); };
      const select = () => { const s = getSelection(), r = document.createRange(); r.selectNodeContents(source); s.removeAllRanges(); s.addRange(r); };
      if (navigator.clipboard) navigator.clipboard.writeText(source.textContent).then(done, select); else select();
    });
  }
})();
