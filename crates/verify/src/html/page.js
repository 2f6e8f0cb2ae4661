'use strict';
// Comfort only: the page can be read without. Reads cells under the pointer, walks the map with arrow keys, copies commands.
(() => {
  const $ = s => document.querySelector(s), all = s => [...document.querySelectorAll(s)];
  const asked = new URLSearchParams(location.search);
  if (asked.get('theme')) document.documentElement.dataset.theme = asked.get('theme');
  const nodes = JSON.parse($('#data').textContent).nodes;
  const raised = n => String(n).replace(/./g, c => c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[c]);
  const number = v => {
    if (v === null || v === undefined) return '∞';
    const a = Math.abs(v);
    if (a === 0) return '0';
    if (a >= 1e-3 && a < 1e4) return v.toFixed(a >= 100 ? 0 : a >= 10 ? 1 : a >= 1 ? 2 : 3).replace('-', '−');
    const [digits, power] = v.toExponential(1).split('e');
    return digits.replace('-', '−') + ' × 10' + raised(+power);
  };
  const judged = n => !['unchecked', 'inconclusive'].includes(n.verdict);
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
    const n = nodes[cell.dataset.i], free = cell.closest('.strip').id === 'free', ok = judged(n);
    const z = n.phases.map(p => p.worst_z), worst = z.includes(null) ? null : Math.max(0, ...z);
    const bad = ['structural_bug', 'not_finite', 'undeclared_precision'].includes(n.verdict);
    const fields = [
      field(free ? 'Node, free-running' : 'Node, isolated', n.node, 'mono'), field('Operator', n.op),
      field('Weight', n.tensor || '–'), field('Worst z', ok ? number(worst) : '–'),
      field(free ? 'Error' : 'Over limit', free ? (n.total === null ? '–' : number(n.total)) : ok ? number(n.share) : '–'),
      field('Expected', n.total_expected === null ? '–' : number(n.total_expected)),
      field('Verdict', n.verdict.replaceAll('_', ' ') + (n.waived ? ', waived' : ''), bad ? 'v-bad' : 'v')];
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
