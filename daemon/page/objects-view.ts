/** Tables of programs' objects, one at a time: queue pairs, connections, CQs, MRs, clients. */
import type {
  ConnectionSummary,
  CQSummary,
  MRSummary,
  ObjectOwner,
  QPSummary,
} from '#contract/protocol/control';
import type { ClientStatus, DaemonStatus } from '#contract/protocol/ipc-admin';
import { byId, el, setText } from './dom.ts';
import type { ListName, PageState, PageStore } from './page-state.ts';
import { LIST_ROWS_MAX } from './poller.ts';
import { type Column, TableView } from './table-view.ts';
import { counted, duration, rate, size, socketAddress, whole } from './units.ts';

interface Tab {
  readonly name: ListName;
  readonly title: string;
  readonly empty: readonly (Node | string)[];
  readonly element: HTMLElement;
  readonly show: (state: PageState) => number;
  readonly count: (status: DaemonStatus) => number | undefined;
}

/** Shows the tabs and keeps them up to date. */
export function showObjects(store: PageStore): void {
  const tabs = makeTabs();
  const buttons = tabs.map((tab, index) => tabButton(tab, () => choose(index)));
  const panel = el('div', {
    id: 'object-panel',
    attributes: { role: 'tabpanel', tabindex: '-1' },
  });
  const bar = el('div', { class: 'tabs', attributes: { role: 'tablist' } }, buttons);
  byId('objects').append(
    el('div', { class: 'title' }, [el('h2', { id: 'objects-title', text: 'Objects' }), bar]),
    panel,
  );
  const choose = (index: number): void => {
    const tab = tabs[(index + tabs.length) % tabs.length];
    if (tab === undefined) return;
    store.update({ list: tab.name });
    buttons[tabs.indexOf(tab)]?.focus();
  };
  bar.addEventListener('keydown', (event) => {
    const at = tabs.findIndex(({ name }) => name === store.state.list);
    const steps: Readonly<Record<string, number>> = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      Home: 0,
      End: tabs.length - 1,
    };
    const to = steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(to);
  });
  const empty = el('p', { class: 'empty' });
  const more = el('p', { class: 'hint' });
  store.watch(
    ({ list }) => list,
    (list) => {
      const tab = tabs.find(({ name }) => name === list);
      if (tab === undefined) return;
      for (const [index, button] of buttons.entries()) {
        const chosen = tabs[index] === tab;
        button.setAttribute('aria-selected', String(chosen));
        button.tabIndex = chosen ? 0 : -1;
      }
      panel.setAttribute('aria-labelledby', `tab-${list}`);
      empty.replaceChildren(...tab.empty);
      panel.replaceChildren(tab.element, empty, more);
    },
  );
  store.watch(
    (state) => state,
    (state) => {
      const tab = tabs.find(({ name }) => name === state.list);
      if (tab === undefined || state.status === undefined) return;
      const shown = tab.show(state);
      tab.element.hidden = shown === 0;
      empty.hidden = shown > 0;
      more.hidden = shown < LIST_ROWS_MAX;
      setText(more, `The first ${LIST_ROWS_MAX}; the API lists all.`);
      for (const [index, each] of tabs.entries()) {
        const count = each.count(state.status);
        const badge = buttons[index]?.lastElementChild;
        if (badge != null) setText(badge, count === undefined ? '' : whole(count));
      }
    },
  );
}

function tabButton({ name, title }: Tab, onClick: () => void): HTMLButtonElement {
  const attributes = { role: 'tab', type: 'button', 'aria-controls': 'object-panel' };
  const label = el('span', { text: title });
  return el('button', { id: `tab-${name}`, attributes, onClick }, [
    label,
    el('span', { class: 'count' }),
  ]);
}

const NO_CLIENT: readonly string[] = ['iwarpd run -- ibv_devinfo', 'iwarpd rping -s'];

function emptyText(what: string): readonly (Node | string)[] {
  const [first = '', second = ''] = NO_CLIENT;
  return [`${what}; try `, el('code', { text: first }), ' or ', el('code', { text: second }), '.'];
}

function makeTabs(): readonly Tab[] {
  const qps = new QPTable();
  const connections = new TableView('Connections', CONNECTION_COLUMNS, connectionKey);
  const cqs = new TableView('Completion queues', CQ_COLUMNS, objectKey);
  const mrs = new TableView('Memory regions', MR_COLUMNS, objectKey);
  const clients = new TableView('Clients', CLIENT_COLUMNS, ({ id }) => String(id));
  const listed = <T>(view: TableView<T>, rows: readonly T[]): number => {
    view.update(rows);
    return rows.length;
  };
  return [
    {
      name: 'qps',
      title: 'QPs',
      empty: emptyText('No queue pair yet'),
      element: qps.view.element,
      show: (state) => qps.show(state.qps),
      count: countOf('qp'),
    },
    {
      name: 'connections',
      title: 'Connections',
      empty: ['No connection.'],
      element: connections.element,
      show: (state) => listed(connections, state.connections),
      count: () => undefined,
    },
    {
      name: 'cqs',
      title: 'CQs',
      empty: emptyText('No completion queue yet'),
      element: cqs.element,
      show: (state) => listed(cqs, state.cqs),
      count: countOf('cq'),
    },
    {
      name: 'mrs',
      title: 'MRs',
      empty: emptyText('No memory region yet'),
      element: mrs.element,
      show: (state) => listed(mrs, state.mrs),
      count: countOf('mr'),
    },
    {
      name: 'clients',
      title: 'Clients',
      empty: emptyText('No client yet'),
      element: clients.element,
      show: (state) => listed(clients, state.status?.clients ?? []),
      count: ({ clients: all }) => all.length,
    },
  ];
}

function countOf(kind: string): (status: DaemonStatus) => number {
  return ({ clients }) => clients.reduce((sum, { usage }) => sum + (usage.objects[kind] ?? 0), 0);
}

/** A program, by name if known. */
export function programText({ program, pid }: { program: string; pid: number }): string {
  return program === '' ? `PID ${pid}` : `${program} (${pid})`;
}

const objectKey = ({ client, device, handle }: ObjectOwner) => `${client} ${device} ${handle}`;

const connectionKey = ({ device, local, remote, role }: ConnectionSummary) =>
  `${device} ${role} ${socketAddress(local)} ${socketAddress(remote)}`;

function ownerColumns<T extends ObjectOwner>(): readonly Column<T>[] {
  return [
    { title: 'Device', value: ({ device }) => device },
    { title: 'Program (PID)', value: programText },
  ];
}

/** Queue pairs, with rates between polls. */
class QPTable {
  readonly view: TableView<QPSummary>;
  #last: { at: number; taken: ReadonlyMap<string, Taken> } | undefined;
  #rates = new Map<string, Taken>();
  #shown: readonly QPSummary[] = [];

  constructor() {
    const perSecond = (qp: QPSummary, which: keyof Taken): string => {
      const value = this.#rates.get(objectKey(qp))?.[which];
      return value === undefined ? '–' : rate(value);
    };
    this.view = new TableView(
      'Queue pairs',
      [
        { title: 'QP', value: ({ qpNum }) => String(qpNum), numeric: true },
        {
          title: 'State',
          value: ({ state }) => state,
          badge: ({ state }) => (state === 'RTS' ? 'good' : state === 'ERR' ? 'bad' : 'plain'),
        },
        { title: 'Type', value: ({ type }) => type },
        ...ownerColumns<QPSummary>(),
        { title: 'Local', value: localOf, mono: true },
        { title: 'Peer', value: peerOf, mono: true },
        {
          title: 'Send WQEs',
          help: 'Work requests taken from the send queue since the QP was created or reset',
          value: ({ sendsTaken }) => whole(sendsTaken),
          numeric: true,
        },
        { title: '/s', value: (qp) => perSecond(qp, 'sends'), numeric: true },
        {
          title: 'Recv WQEs',
          help: 'Receives taken from the receive queue, or from a shared one for this QP',
          value: ({ receivesTaken }) => whole(receivesTaken),
          numeric: true,
        },
        { title: '/s', value: (qp) => perSecond(qp, 'receives'), numeric: true },
        {
          title: 'SQ',
          help: 'Depth of the send queue',
          value: ({ maxSendWr }) => whole(maxSendWr),
          numeric: true,
        },
        {
          title: 'RQ',
          help: 'Depth of the receive queue; SRQ: it receives from a shared one',
          value: ({ maxRecvWr, srq }) => (srq ? 'SRQ' : whole(maxRecvWr)),
          numeric: true,
        },
      ],
      objectKey,
    );
  }

  show(qps: readonly QPSummary[]): number {
    if (qps !== this.#shown) {
      this.#shown = qps;
      this.#count(qps, performance.now() / 1000);
      this.view.update(qps);
    }
    return qps.length;
  }

  #count(qps: readonly QPSummary[], at: number): void {
    const taken = new Map(
      qps.map((qp) => [objectKey(qp), { sends: qp.sendsTaken, receives: qp.receivesTaken }]),
    );
    const seconds = at - (this.#last?.at ?? at);
    this.#rates = new Map();
    for (const [key, now] of taken) {
      const before = this.#last?.taken.get(key);
      if (before === undefined || seconds <= 0 || now.sends < before.sends) continue;
      this.#rates.set(key, {
        sends: (now.sends - before.sends) / seconds,
        receives: Math.max(0, now.receives - before.receives) / seconds,
      });
    }
    this.#last = { at, taken };
  }
}

interface Taken {
  readonly sends: number;
  readonly receives: number;
}

const localOf = ({ connection }: QPSummary) =>
  connection === undefined ? '–' : socketAddress(connection.local);

/** The peer's address; on a RoCE device its queue pair, with its device or its GID. */
function peerOf({
  connection,
  destination,
}: Pick<QPSummary, 'connection' | 'destination'>): string {
  if (destination !== undefined) {
    return `QP ${destination.qpNum} at ${destination.device ?? destination.gid}`;
  }
  return connection === undefined ? '–' : socketAddress(connection.remote);
}

const CONNECTION_COLUMNS: readonly Column<ConnectionSummary>[] = [
  { title: 'Device', value: ({ device }) => device },
  {
    title: 'Phase',
    value: ({ phase }) => phase,
    badge: ({ phase }) => (phase === 'established' ? 'good' : 'plain'),
  },
  { title: 'Role', value: ({ role }) => role },
  { title: 'QP', value: ({ qpNum }) => (qpNum === undefined ? '–' : String(qpNum)), numeric: true },
  { title: 'Local', value: ({ local }) => socketAddress(local), mono: true },
  { title: 'Peer', value: ({ remote }) => socketAddress(remote), mono: true },
];

const CQ_COLUMNS: readonly Column<CQSummary>[] = [
  {
    title: 'CQ',
    help: 'Its number in the program',
    value: ({ handle }) => String(handle),
    numeric: true,
  },
  ...ownerColumns<CQSummary>(),
  { title: 'CQEs', help: 'Entries', value: ({ entries }) => whole(entries), numeric: true },
];

const MR_COLUMNS: readonly Column<MRSummary>[] = [
  {
    title: 'STag',
    help: 'lkey and rkey',
    value: ({ key }) => (key === undefined ? '–' : `0x${key.toString(16).padStart(8, '0')}`),
    mono: true,
  },
  ...ownerColumns<MRSummary>(),
  { title: 'Address', value: ({ address }) => address ?? '–', mono: true, numeric: true },
  { title: 'Length', value: ({ lengthBytes }) => size(lengthBytes), numeric: true },
  { title: 'Tier', help: 'How the daemon accesses the memory', value: ({ tier }) => tier },
];

const CLIENT_COLUMNS: readonly Column<ClientStatus>[] = [
  { title: 'Client', value: ({ id }) => String(id), numeric: true },
  { title: 'Program', value: ({ program }) => (program === '' ? '–' : program) },
  { title: 'PID', value: ({ pid }) => String(pid), numeric: true },
  { title: 'UID', value: ({ uid }) => String(uid), numeric: true },
  {
    title: 'Connected',
    value: ({ connectedSeconds }) => duration(connectedSeconds),
    numeric: true,
  },
  { title: 'Holds', value: ({ usage }) => heldText(usage.objects), long: true },
  { title: 'Shared', value: ({ usage }) => size(usage.sharedBytes), numeric: true },
  { title: 'Registered', value: ({ usage }) => size(usage.pinnedBytes), numeric: true },
];

/** `1 context, 2 pd, 3 mr`, or that it holds nothing. */
export function heldText(objects: Readonly<Record<string, number>>): string {
  const held = Object.entries(objects).filter(([, count]) => count > 0);
  if (held.length === 0) return 'nothing';
  return held.map(([kind, count]) => `${count} ${kind}`).join(', ');
}

/** `2 clients`, for sentences. */
export function clientsText(status: DaemonStatus | undefined): string {
  return counted(status?.clients.length ?? 0, 'client');
}
