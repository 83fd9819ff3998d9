// The report of a job: its sections, in the order in which they answer questions.

const job = JSON.parse(document.getElementById('job').textContent);
const page = document.getElementById('page');
page.replaceChildren();
const PAINTS = ['compute', 'reduce', 'optimizer', 'exchange', 'gather', 'data', 'backward', 'other'];
const paint = (number) => color(PAINTS[number % PAINTS.length]);

function section(title, note, ...content) {
  page.append(make('h2', {}, title));
  if (note) page.append(make('p', { class: 'note' }, note));
  page.append(...content);
}

function table(heads, rows) {
  // Numbers stand under their column's name; a table without such names is one of facts.
  const hasColumns = heads.some((head) => head !== '');
  const isNumber = (text) => hasColumns && /^(–|[\d.,]+( [kMGT]?B)?)$/.test(text);
  return make('table', {},
    make('tr', {}, ...heads.map((head) => make('th', {}, head))),
    ...rows.map((row) => make('tr', {}, ...row.map((cell) =>
      make('td', isNumber(String(cell)) ? { class: 'number' } : {}, String(cell))))));
}

// --- The verdict -------------------------------------------------------------------------------

const facts = job.card.facts || {};
const name = facts.job_name || 'Training job';
document.title = name;
page.append(make('h1', {}, name));
job.findings.forEach((finding, number) => {
  const kind = finding.rule === 'failed' ? ' bad' : number > 0 ? ' minor' : '';
  page.append(make('div', { class: `verdict${kind}` }, make('strong', {}, finding.text),
    finding.advice || ''));
});
if (job.problems.length > 0) {
  page.append(make('div', { class: 'verdict minor' }, make('strong', {}, 'What is missing here'),
    ...job.problems.map((problem) => make('div', {}, problem))));
}

// --- The card ----------------------------------------------------------------------------------

const settings = facts.settings || {};
const told = Object.entries(settings).filter(([, value]) =>
  value !== null && value !== false && value !== '');
section('The job', null, table(['', ''], [
  ['hosts', job.card.hosts.join(', ')],
  ['ranks', `${job.card.ranks}${facts.ranks ? ` of ${facts.ranks}` : ''}`],
  ['steps', digits(job.card.steps)],
  ['time of a step', `${digits(job.card.p50_ms)} ms (median), ${digits(job.card.p95_ms)} ms (95th percentile)`],
  ['samples', `${digits(job.card.samples_per_second)} in a second`],
  ['device', facts.device || '–'],
  ['versions', [facts.torch && `torch ${facts.torch}`, facts.smp && `smp ${facts.smp}`]
    .filter(Boolean).join(', ') || '–'],
  ['settings', told.map(([key, value]) => `${key}: ${value}`).join(', ') || '–'],
  ...(facts.image ? [['image', facts.image]] : []),
  ...job.events.filter(([, , kind]) => kind === 'self_check')
    .map(([, , , text]) => ['self-check', text]),
]));

// --- Failure -----------------------------------------------------------------------------------

if (job.end && job.end.exit_code !== 0) {
  section('The failure', 'The first cause, and the last lines of the job.',
    make('pre', {}, job.end.failure || `exit code ${job.end.exit_code}`),
    make('pre', {}, job.end.last_lines.join('\n')));
}

// --- Over time ---------------------------------------------------------------------------------

const marks = job.events.map(([time, , kind, text]) => [time, `${kind} ${text}`]);
if (job.losses.length > 0) {
  const of = (training) => job.losses.filter((point) => point[2] === training);
  const lines = [['training', true], ['evaluation', false]]
    .filter(([, training]) => of(training).length > 0)
    .map(([title, training], number) => ({ name: title, paint: paint(number), points: of(training) }));
  lines.forEach((line) => { line.points = line.points.map((point) => [point[0], point[1]]); });
  section('Loss', job.ranks.length > 0 ? 'As the first rank printed it.' : 'As the script prints it.', legend(lines.map((l) => [l.name, l.paint])),
    lineChart({ lines, xName: 'step', yName: 'loss', fromZero: false }));
}
if (job.series.length > 0) {
  const lines = job.series.map((series, number) => ({ name: series.name || `rank ${series.rank}`,
    paint: paint(number), points: series.points.map((p) => [p[1], p[2], p[3]]) }));
  section('Time of a step', 'Mean and, as a band, the longest; drag to zoom, double click for all.',
    legend(lines.map((line) => [line.name, line.paint])),
    lineChart({ lines, marks, xName: 's since the begin', yName: 'ms' }));
}

// --- Shares ------------------------------------------------------------------------------------

// The names of shares are those of colours, too.
const MEANING = { compute: 'running modules', wait: 'waiting for messages of the pipeline',
  gather: 'waiting for parameters', reduce: 'waiting for sums of gradients',
  exchange: 'waiting for tensor parallelism', optimizer: 'optimizer',
  data: 'outside of steps: data, the script', other: 'in a step, nothing of these' };
// Places in groups, under the names that `train --plan` has for them; a group of one has none.
const GROUPS = [['pp', 'stage'], ['tp', 'tp'], ['rdp', 'rdp']]
  .filter(([, key]) => job.ranks.some((rank) => rank[key] > 0));
if (job.ranks.length > 0) {
  section('Where the time of a step goes', 'Mean over all steps but the first two.',
    legend(Object.entries(MEANING).map(([key, meaning]) => [meaning, color(key)])),
    shareBars(job.ranks.map((rank) => ({
      name: `rank ${rank.rank}${job.card.stages > 1 ? `, partition ${rank.stage}` : ''}`,
      parts: Object.entries(rank.shares).map(([key, share]) => [MEANING[key], color(key), share]),
      text: `${digits(rank.step_ms)} ms` }))),
    table(['rank', ...GROUPS.map(([name]) => name), 'host', 'steps', 'median ms',
      '95th percentile ms', 'sent in a step', 'peak memory'],
      job.ranks.map((rank) => [rank.rank, ...GROUPS.map(([, key]) => rank[key]), rank.host,
        digits(rank.steps), digits(rank.p50_ms), digits(rank.p95_ms), bytes(rank.bytes_a_step),
        bytes(rank.peak_memory)])));
}

// --- The chart of a step -----------------------------------------------------------------------

const paintOf = (kind) => color(kind === 'forward' ? 'compute' : kind);
const MODULES = ['forward', 'backward', 'deferred', 'wait'];

/** Rows of [place, number in activities, begin us, duration us, microbatch, number in names]. */
function lanesOf(rows, place, names = []) {
  const lanes = new Map();
  for (const [number, activity, begin, duration, microbatch, named] of rows) {
    const kind = job.activities[activity];
    const lane = `${place} ${number}${MODULES.includes(kind) ? '' : `: ${kind}`}`;
    if (!lanes.has(lane)) lanes.set(lane, { name: lane, number, spans: [] });
    const text = [microbatch >= 0 ? `${kind} of microbatch ${microbatch}` : kind, names[named]];
    lanes.get(lane).spans.push([begin / 1000, duration / 1000, paintOf(kind),
      text.filter(Boolean).join(', ')]);
  }
  return [...lanes.values()].sort((one, other) =>
    one.number - other.number || one.name.length - other.name.length);
}

if (job.chart.length > 0) {
  const place = make('div');
  const buttons = job.chart.map((step) => make('button', {}, `step ${step.step}`));
  const show = (number) => {
    buttons.forEach((button, n) => button.setAttribute('aria-pressed', String(n === number)));
    const step = job.chart[number];
    const end = Math.max(0, ...step.rows.map((row) => row[2] + row[3])) / 1000;
    place.replaceChildren(laneChart(lanesOf(step.rows, 'rank', step.names), end, 'ms'));
    if (!step.ideal) return;
    const { length, waited, rows } = step.ideal;
    place.append(make('p', { class: 'note' }, `The same work in equal partitions, in the job's
      schedule and without any transfer: ${digits(length / 1000)} ms, of which each partition waits
      ${digits(100 * waited)} %.`),
    laneChart(lanesOf(rows, 'partition'), length / 1000, 'ms'));
  };
  buttons.forEach((button, number) => { button.onclick = () => show(number); });
  section('What ranks did in a step',
    'The wheel zooms, dragging moves, a double click shows all; on GPUs these are times of launches.',
    legend(job.activities.map((kind) => [kind, paintOf(kind)])),
    make('div', {}, ...buttons), place);
  show(job.chart.length - 1);
}

// --- Partition, memory, traffic, hosts ---------------------------------------------------------

const partition = job.card.partition;
if (partition) {
  const numbers = Array.from({ length: job.card.stages }, (_, stage) => stage);
  const meanOf = (stage, of) => {
    const own = job.ranks.filter((rank) => rank.stage === stage);
    return own.reduce((sum, rank) => sum + of(rank), 0) / (own.length || 1);
  };
  const computed = numbers.map((stage) => meanOf(stage, (rank) => rank.shares.compute * rank.step_ms));
  const predicted = partition.times || [];
  const percent = (all, stage) => {
    const sum = all.reduce((one, other) => one + other, 0);
    return sum > 0 && all[stage] !== undefined ? digits(100 * all[stage] / sum) : '–';
  };
  const stages = numbers.map((stage) => [stage, digits(computed[stage]),
    percent(predicted, stage), percent(computed, stage),
    bytes(meanOf(stage, (rank) => rank.memory_kinds.parameters || 0)),
    bytes(meanOf(stage, (rank) => rank.peak_memory))]);
  section('The partition', `${partition.summary}. ${partition.balance}`,
    table(['partition', 'computes in a step, ms', 'predicted share, %', 'measured share, %',
      'parameters', 'peak memory'], stages),
    ...predictions(),
    make('pre', {}, partition.tree.trim()));
}

/** What the partitioner expected of a step, beside what it was. */
function predictions() {
  const { predicted, measured } = job.card;
  if (!predicted) return [];
  const row = (title, text) => [title, text(predicted), text(measured)];
  return [
    table(['a step', 'predicted', 'measured'], [
      row('time in smp.step, ms', (step) => digits(step.step_ms)),
      row('a partition works, % of it', (step) => digits(100 * step.use)),
      row('fullest partition: state and activations', (step) => bytes(step.bytes)),
    ]),
    make('p', { class: 'note' }, `The prediction takes Adam's state for granted and, but with
      trace_execution_times, the speed of the device: shares of the time tell more than times.`),
  ];
}
if (job.card.suggested) {
  const { predicted, measured, candidates } = job.card.suggested;
  const row = (title, text) => [title, text(predicted), text(measured)];
  const points = candidates.map(([memory, speed, fits, text], number) => [memory, 1 / speed,
    color(number === 0 ? 'optimizer' : fits ? 'quiet' : 'bad'), `${text}: ${bytes(memory)}, ${digits(1 / speed)} s`]);
  const front = [];  // no other point beats these in both
  for (const point of [...points].sort((one, other) => one[0] - other[0] || one[1] - other[1])) {
    if (front.length === 0 || point[1] < front.at(-1)[1]) front.push(point);
  }
  section('The suggestion', 'What train --suggest predicted for these settings, and what they took.',
    table(['a step', 'predicted', 'measured'], [
      row('time, ms', (step) => digits(step.step_ms)),
      row('computing, % of it', (step) => digits(100 * step.computed)),
      row('waiting for other partitions, % of it', (step) => digits(100 * step.waited)),
      row('memory of the fullest rank', (step) => bytes(step.memory_bytes)),
      row('sent by a rank', (step) => bytes(step.sent_bytes)),
    ]),
    make('p', { class: 'note' }, 'All that it predicted; the line joins what nothing else beats in both.'),
    legend([['these settings', color('optimizer')], ['others', color('quiet')],
      ['do not fit', color('bad')]]),
    scatter({ points, front, xName: 'memory of the fullest rank', yName: 's a sample', format: bytes }));
}
const KINDS = ['parameters', 'persistent', 'gradients', 'optimizer', 'activations', 'peak_live', 'offloaded'];
const withMemory = job.ranks.filter((rank) => rank.peak_memory > 0);
if (withMemory.length > 0) {
  const most = Math.max(...withMemory.map((rank) => rank.peak_memory));
  section('Memory', 'The most that each kind took, of the peak of the rank; the rest is the process.',
    legend(KINDS.map((kind, number) => [kind.replace('_', ' '), paint(number)])),
    shareBars(withMemory.map((rank) => ({ name: `rank ${rank.rank}`,
      parts: KINDS.map((kind, number) => [kind, paint(number), (rank.memory_kinds[kind] || 0) / most]),
      text: bytes(rank.peak_memory) }))));
  const STATE = ['parameters', 'persistent', 'gradients', 'optimizer'];
  const known = withMemory.filter((rank) => rank.state_by_formula > 0);
  if (known.length > 0) {
    page.append(
      make('p', { class: 'note' }, `By the formula: 16 bytes a parameter, which Adam in 32 bits
        needs for value, gradient and moments, over the ranks that share it.`),
      table(['rank', 'state by the formula', 'parameters, gradients and optimizer'],
        known.map((rank) => [rank.rank, bytes(rank.state_by_formula),
          bytes(STATE.reduce((sum, kind) => sum + (rank.memory_kinds[kind] || 0), 0))])));
  }
  const lines = job.memory.filter((own) => own.points.length > 1).map((own, number) =>
    ({ name: `rank ${own.rank}`, paint: paint(number), points: own.points }));
  if (lines.length > 0) {
    page.append(lineChart({ lines, xName: 's since the begin', yName: 'peak memory', format: bytes }));
  }
}
if (job.traffic.length > 0) {
  const most = Math.max(...job.traffic.map((pair) => pair[2]));
  const ranks = Math.max(...job.traffic.flatMap((pair) => [pair[0], pair[1]])) + 1;
  const cells = job.traffic.map(([from, to, sent, messages, inside]) =>
    [from, to, sent, color(inside ? 'compute' : 'reduce'),
      `rank ${from} to rank ${to}: ${bytes(sent)} in ${digits(messages)} messages`]);
  const sorted = [...job.traffic].sort((one, other) => other[2] - one[2]).slice(0, 24);
  const names = Array.from({ length: ranks }, (_, rank) => `rank ${rank}`);
  section('Bytes between ranks',
    ranks > 2 ? 'From the rank of a row to that of a column, and the most.' : 'All that was sent.',
    legend([['inside a host', color('compute')], ['between hosts', color('reduce')]]),
    ...(ranks > 2 ? [matrix(names, cells)] : []),
    shareBars(sorted.map((pair) => ({
      name: `rank ${pair[0]} to ${pair[1]}`,
      parts: [[`${digits(pair[3])} messages`, color(pair[4] ? 'compute' : 'reduce'), pair[2] / most]],
      text: bytes(pair[2]) }))));
}
const hosts = job.hosts.filter((host) => host.points.length > 1);
if (hosts.length > 0) {
  const of = (place, factor) => hosts.map((host, number) => ({ name: host.host, paint: paint(number),
    points: host.points.map((point) => [point[0], point[place] * factor]) }));
  section('Hosts', null, legend(hosts.map((host, number) => [host.host, paint(number)])),
    lineChart({ lines: of(1, 100), xName: 's since the begin', yName: 'processors in use, %' }),
    lineChart({ lines: of(2, 1), xName: 's since the begin', yName: 'memory in use', format: bytes }),
    lineChart({ lines: of(4, 1), xName: 's since the begin', yName: 'sent in a second', format: bytes }));
}
page.append(make('p', { class: 'note' },
  'All data of this page is in the file, as JSON in the element "job".'));
