/** A card per device: its properties, rates and counters. */
import type { DeviceStatus } from '#contract/protocol/ipc-admin';
import { protocolText } from '#contract/verbs/attributes';
import { byId, el, setText, showChildren } from './dom.ts';
import type { PageStore } from './page-state.ts';
import { RatePlot } from './plots.ts';
import { countersOf, type RateHistory, ratesOf } from './rates.ts';
import { byteRate, guid, rate, si, whole } from './units.ts';

/** Counter names in display order, with descriptions. */
const COUNTERS: readonly (readonly [counter: string, name: string, help: string])[] = [
  ['sends_taken', 'Send WQEs', 'Work requests taken from send queues'],
  ['receives_taken', 'Receive WQEs', 'Receives taken from receive queues and shared ones'],
  ['completions', 'CQEs', 'Completions of all kinds'],
  ['failures', 'CQEs in error', 'Completions with an error'],
  ['flushes', 'CQEs flushed', 'Completions with a flush error'],
  ['out_sends', 'Sends out', 'RDMAP Send messages sent'],
  ['out_writes', 'RDMA Writes out', 'RDMA Write messages sent'],
  ['out_reads', 'RDMA Reads out', 'RDMA Read Requests sent'],
  ['out_atomics', 'Atomics out', 'Atomic Requests sent'],
  ['out_immediates', 'Immediates out', 'Immediate Data messages sent'],
  ['in_sends', 'Sends in', 'RDMAP Send messages delivered'],
  ['in_writes', 'RDMA Writes in', 'RDMA Write messages placed'],
  ['in_reads', 'RDMA Reads in', 'RDMA Read Requests received and allowed'],
  ['atomics', 'Atomics in', 'Atomic operations performed for peers'],
  ['in_immediates', 'Immediates in', 'Immediate Data messages delivered'],
  ['gathered_bytes', 'Bytes out', 'Payload bytes gathered for peers'],
  ['placed_bytes', 'Bytes in', 'Payload bytes placed for peers'],
  ['access_errors', 'Access errors', 'Accesses of peers refused'],
  [
    'missing_receives',
    'Receives missing',
    'Messages of peers that found no receive; on RoCE they are sent again',
  ],
  ['too_long_messages', 'Too long', 'Messages of peers longer than their receive'],
  ['binds', 'MW binds', 'Memory windows bound'],
  ['invalidations', 'Invalidations', 'STags invalidated'],
  ['async_events', 'Async events', 'Asynchronous events'],
];
const KNOWN = new Set(COUNTERS.map(([counter]) => counter));
/** Counters that indicate a problem if they are not zero. */
const WARNINGS = new Set(['failures', 'access_errors', 'too_long_messages']);
const BYTES = new Set(['gathered_bytes', 'placed_bytes']);

/** Shows the cards and keeps them up to date. */
export function showDevices(store: PageStore, rates: RateHistory): void {
  const list = byId('device-list');
  let cards = new Map<string, DeviceCard>();
  const empty = el('p', { class: 'empty' }, [
    'No devices. Start the daemon with one: ',
    el('code', { text: 'iwarpd start --device NAME=ADDRESS' }),
    '.',
  ]);
  store.watch(
    ({ status }) => status,
    (status) => {
      if (status === undefined) return;
      cards = new Map(
        status.devices.map((device) => {
          const { name } = device.device;
          const card = cards.get(name) ?? new DeviceCard(device);
          card.update(device, rates);
          return [name, card];
        }),
      );
      const elements = [...cards.values()].map(({ element }) => element);
      showChildren(list, elements.length > 0 ? elements : [empty]);
    },
  );
}

class DeviceCard {
  readonly element: HTMLElement;
  readonly #state = el('span', { class: 'badge' });
  readonly #plots: readonly RatePlot[];
  readonly #counters = new Map<string, CounterCell>();

  constructor(status: DeviceStatus) {
    const { name, backend, nodeGuid, addresses } = status.device;
    const protocol = protocolText(status.device);
    const has = new Set(ratesOf(status));
    const throughput = new RatePlot({
      title: 'Throughput',
      help: 'Payload of Sends, RDMA Writes and Read Responses',
      outward: 'bytesOut',
      inward: 'bytesIn',
      unit: 'B/s',
      format: byteRate,
    });
    const messages = new RatePlot({
      title: 'Message rate',
      help: backend === 'native' ? 'Work requests' : 'RDMAP messages',
      outward: 'messagesOut',
      inward: 'messagesIn',
      unit: '/s',
      format: rate,
    });
    this.#plots = has.has('bytesOut') ? [throughput, messages] : [messages];
    const counters = el('dl', { class: 'counters' });
    const all = countersOf(status);
    const order = COUNTERS.filter(([own]) => own in all);
    const others = Object.keys(all).filter((own) => !KNOWN.has(own));
    const unknown = others.map((own) => [own, own, own] as const);
    for (const [own, title, help] of [...order, ...unknown]) {
      const cell = new CounterCell(title, help, BYTES.has(own));
      this.#counters.set(own, cell);
      counters.append(cell.element);
    }
    this.element = el('article', { class: 'panel device', attributes: { 'aria-label': name } }, [
      el('div', { class: 'device-head' }, [
        el('h3', { text: name }),
        this.#state,
        el('span', { class: 'chip', text: [backend, protocol].filter(Boolean).join(', ') }),
        fact('node GUID', guid(nodeGuid)),
        fact('addresses', addresses.length === 0 ? 'every address' : addresses.join(', ')),
      ]),
      el(
        'div',
        { class: 'plots' },
        this.#plots.map((plot) => plot.element),
      ),
      el('details', { attributes: { open: '' } }, [el('summary', { text: 'Counters' }), counters]),
    ]);
  }

  update(status: DeviceStatus, rates: RateHistory): void {
    const { device, portState } = status;
    const counters = countersOf(status);
    setText(this.#state, portState.toUpperCase());
    this.#state.className = `badge ${portState === 'active' ? 'good' : 'bad'}`;
    const known = rates.of(device.name);
    for (const plot of this.#plots) plot.update(known.points);
    for (const [own, cell] of this.#counters) {
      cell.update(counters[own] ?? 0, known.counters[own] ?? 0, WARNINGS.has(own));
    }
  }
}

/** One counter: its value and its rate. */
class CounterCell {
  readonly element: HTMLElement;
  readonly #value = el('dd');
  readonly #rate = el('dd', { class: 'rate' });
  readonly #bytes: boolean;

  constructor(title: string, help: string, bytes: boolean) {
    this.#bytes = bytes;
    this.element = el('div', { title: help }, [el('dt', { text: title }), this.#value, this.#rate]);
  }

  update(value: number, perSecond: number, isWarning: boolean): void {
    setText(this.#value, this.#bytes ? `${si(value)}B` : whole(value));
    // The exact number of bytes, as a tooltip.
    if (this.#bytes) this.#value.title = whole(value);
    const growth = this.#bytes ? byteRate(perSecond) : rate(perSecond);
    setText(this.#rate, perSecond > 0 ? growth : '');
    this.element.className = value === 0 ? 'zero' : isWarning ? 'bad' : '';
  }
}

function fact(name: string, value: string): HTMLElement {
  return el('span', { class: 'fact' }, [
    el('span', { class: 'name', text: name }),
    ' ',
    el('span', { class: 'mono', text: value }),
  ]);
}
