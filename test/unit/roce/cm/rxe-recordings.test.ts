/**
 * Connection management as the kernel's rxe and rdma_cm do it: the MADs of recordings are read
 * and written again, and our manager takes the place of either side. The comparison ignores random
 * fields (numbers of connections, PSNs), names of adapters, and the transactions of requests.
 */
import { describe, expect, it } from 'vitest';
import { QPState, QPType } from '#contract/verbs/enums';
import type { CmConnection } from '#daemon/roce/cm/cm-connection';
import type { IbCmEvent } from '#daemon/roce/cm/cm-events';
import type { CmPath, CmPort } from '#daemon/roce/cm/cm-path';
import type { CmEndFacts } from '#daemon/roce/cm/cm-types';
import { CommunicationManager } from '#daemon/roce/cm/communication-manager';
import {
  type CmFields,
  type CmMessage,
  type CmMessageName,
  parseCmMessage,
  writeCmMessage,
} from '#daemon/roce/wire/cm-message';
import { GSI_QKEY, GSI_QPN } from '#daemon/roce/wire/mad';
import { Trait } from '#daemon/roce/wire/opcode';
import { bytesOf, hexOf } from '#test/support/hex';
import { packetsOfRecording, recordingNames } from '#test/support/roce-recordings';

const NAMES = recordingNames().filter((name) => name.startsWith('cm-') && name !== 'cm-multicast');

interface RecordedMad {
  readonly mad: Uint8Array;
  readonly message: CmMessage;
  readonly from: Uint8Array;
  readonly to: Uint8Array;
}

function read(mad: Uint8Array): CmMessage {
  const message = parseCmMessage(mad);
  if (typeof message === 'string') throw new Error(`a MAD is ${message}`);
  return message;
}

function madsOf(name: string): RecordedMad[] {
  return packetsOfRecording(name)
    .filter(({ packet }) => packet.destQpn === GSI_QPN)
    .map(({ bytes, packet, from, to }) => {
      expect(packet).toMatchObject({ qkey: GSI_QKEY, sourceQpn: GSI_QPN, pkey: 0xffff });
      const mad = bytes.slice(packet.payloadStart, packet.payloadStart + packet.payloadLength);
      return { mad, message: read(mad), from: bytesOf(from), to: bytesOf(to) };
    });
}

/** The fields of the first message of this name. */
function fieldsOf<N extends CmMessageName>(mads: readonly RecordedMad[], name: N): CmFields<N> {
  const found = mads.find(({ message }) => message.name === name);
  if (found === undefined) throw new Error(`no ${name} was recorded`);
  return found.message.fields as CmFields<N>;
}

/** A MAD with other values in some of its fields. */
function changed(
  mad: Uint8Array,
  fields: Record<string, unknown>,
  transaction?: object,
): Uint8Array {
  const message = read(mad);
  return writeCmMessage(message.name, { ...message.transaction, ...transaction }, {
    ...message.fields,
    ...fields,
  } as never);
}

/** Expects our MAD to have the bytes of the recorded one, but for these fields. */
function expectSame(
  ours: Uint8Array,
  recorded: Uint8Array,
  free: readonly string[],
  freeTransaction = false,
): void {
  const message = read(recorded);
  const given = Object.entries(message.fields).filter(([field]) => free.includes(field));
  const transaction = freeTransaction ? message.transaction : {};
  const alike = changed(ours, Object.fromEntries(given), transaction);
  expect(read(alike)).toEqual(message);
  expect(hexOf(alike)).toBe(hexOf(recorded));
}

/** One side of a conversation: our manager, its messages and events. */
class Side {
  readonly manager: CommunicationManager;
  readonly port: CmPort;
  readonly gid: Uint8Array;
  readonly events: IbCmEvent[] = [];
  readonly sent: Uint8Array[] = [];

  constructor(gid: Uint8Array) {
    let seed = 1;
    const random32 = () => {
      seed += 1;
      return Math.imul(seed, 0x9e37_79b9) >>> 0;
    };
    this.manager = new CommunicationManager({ random32 });
    this.gid = gid;
    this.port = { name: 'roce0', guid: new Uint8Array(8).fill(2), indexOf: () => 1 };
  }

  receive(mad: Uint8Array, from: Uint8Array): void {
    this.manager.handleMad(mad, this.port, from, this.gid, 0);
    this.settle();
  }

  settle(): void {
    for (;;) {
      const effect = this.manager.pollEffect();
      if (effect === undefined) return;
      if (effect.type === 'event') this.events.push(effect.event);
      else this.sent.push(effect.mad);
    }
  }

  /** The connection of the next event, which must be of this type. */
  connection(type: IbCmEvent['type']): CmConnection {
    const event = this.events.shift();
    expect(event?.type).toBe(type);
    return (event as IbCmEvent).connection;
  }

  say(): Uint8Array {
    this.settle();
    const mad = this.sent.shift();
    if (mad === undefined) throw new Error('nothing was sent');
    return mad;
  }
}

/** An end's parameters in a REQ or REP. */
function factsOf(fields: CmFields<'REQ'> | CmFields<'REP'>): CmEndFacts {
  const { localQpn, responderResources, initiatorDepth, rnrRetry } = fields;
  const { flowControl, srq, privateData } = fields;
  const numbers = { qpn: localQpn, responderResources, initiatorDepth, rnrRetry };
  return { ...numbers, flowControl: flowControl === 1, srq: srq === 1, privateData };
}

function pathOf(side: Side, to: Uint8Array, fields: CmFields<'REQ'>): CmPath {
  const { flowLabel, hopLimit, trafficClass, pkey, pathMtu, localAckTimeout } = fields;
  const grh = { flowLabel, hopLimit, trafficClass, pkey, pathMtu };
  const ends = { port: side.port, sgid: side.gid, sgidIndex: 1, dgid: to };
  // The timeout covers the way there and back.
  return { ...ends, ...grh, packetLifeTime: localAckTimeout - 1 };
}

/** The MADs of the first connection of a recording. */
function firstConnection(name: string): RecordedMad[] {
  const mads = madsOf(name);
  const own = [fieldsOf(mads, 'REQ').localCommId];
  const accepted = mads.find(
    ({ message }) => message.name === 'REP' && own.includes(message.fields.remoteCommId),
  );
  if (accepted?.message.name === 'REP') own.push(accepted.message.fields.localCommId);
  return mads.filter(({ message }) => {
    return 'localCommId' in message.fields && own.includes(message.fields.localCommId);
  });
}

function madNamed(mads: readonly RecordedMad[], name: CmMessageName): RecordedMad {
  const found = mads.find(({ message }) => message.name === name);
  if (found === undefined) throw new Error(`no ${name} was recorded`);
  return found;
}

const OWN_NAMES = ['localCommId', 'remoteCommId', 'startingPsn', 'localCaGuid'];

describe.each(NAMES)('the recording %s', (name) => {
  it('has MADs that are read and written again to the same bytes [IBCM-MSG-06, ROCE-GSI-03]', () => {
    const mads = madsOf(name);
    expect(mads.length).toBeGreaterThan(1);
    for (const { mad, message } of mads) {
      const { fields, transaction } = message;
      expect(hexOf(writeCmMessage(message.name, transaction, fields as never))).toBe(hexOf(mad));
    }
  });
});

describe.each(['cm-rping', 'cm-ucmatose'])('our manager in %s', (name) => {
  const mads = firstConnection(name);
  const [req, rep] = [madNamed(mads, 'REQ'), madNamed(mads, 'REP')];
  const rtu = madNamed(mads, 'RTU');
  const [dreq, drep] = [madNamed(mads, 'DREQ'), madNamed(mads, 'DREP')];
  const asked = fieldsOf(mads, 'REQ');
  const answered = fieldsOf(mads, 'REP');

  /** Either side may have ended it. */
  function expectSameEnd(side: Side, connection: CmConnection): void {
    if (hexOf(dreq.from) === hexOf(side.gid)) {
      side.manager.disconnect(connection, 0);
      expectSame(side.say(), dreq.mad, ['localCommId'], true);
      return;
    }
    side.receive(changed(dreq.mad, { remoteCommId: connection.localCommId }), dreq.from);
    expect(side.connection('disconnect-requested')).toBe(connection);
    side.manager.disconnect(connection, 0);
    expectSame(side.say(), drep.mad, ['localCommId']);
  }

  it('on the passive side answers as the kernel does [IBCM-MSG-02, IBCM-REP-02]', () => {
    const side = new Side(req.to);
    const scope = { port: undefined, gid: undefined, family: undefined };
    side.manager.listen(asked.serviceIdLo, scope, 8, 'listener');
    side.receive(req.mad, req.from);
    const connection = side.connection('request');
    side.manager.accept(connection, factsOf(answered), 0);
    expectSame(side.say(), rep.mad, ['localCommId', 'startingPsn', 'localCaGuid']);
    const { localCommId } = connection;
    side.receive(changed(rtu.mad, { remoteCommId: localCommId }), rtu.from);
    expect(side.connection('established')).toBe(connection);
    expectSameEnd(side, connection);
  });

  it('on the active side sends requests as the kernel does [IBCM-REQ-03]', () => {
    const side = new Side(req.from);
    const request = {
      ...factsOf(asked),
      serviceId: asked.serviceIdLo,
      type: QPType.rc,
      path: pathOf(side, req.to, asked),
      retryCount: asked.retryCount,
      ackTimeout: asked.localAckTimeout,
    };
    const connection = side.manager.connect(request, 'dialer', 0);
    expectSame(side.say(), req.mad, OWN_NAMES, true);
    const { localCommId, transaction } = connection;
    const ours = { hi: transaction.hi, lo: transaction.lo };
    side.receive(changed(rep.mad, { remoteCommId: localCommId }, ours), rep.from);
    expect(side.connection('reply')).toBe(connection);
    side.manager.establish(connection);
    expectSame(side.say(), rtu.mad, ['localCommId'], true);
    expectSameEnd(side, connection);
  });
});

describe("the PSNs of rping's queue pairs", () => {
  it('match those of the recording', () => {
    const mads = firstConnection('cm-rping');
    const [req, rep] = [madNamed(mads, 'REQ'), madNamed(mads, 'REP')];
    const data = packetsOfRecording('cm-rping').filter(
      ({ packet, traits }) => packet.destQpn !== GSI_QPN && (traits & Trait.request) !== 0,
    );
    const first = (gid: Uint8Array) => data.find(({ from }) => from === hexOf(gid))?.packet.psn;
    // In a MAD, a side says with which PSN the other one starts.
    expect(fieldsOf(mads, 'REP').startingPsn).toBe(first(req.from));
    expect(fieldsOf(mads, 'REQ').startingPsn).toBe(first(rep.from));

    const side = new Side(req.to);
    const scope = { port: undefined, gid: undefined, family: undefined };
    side.manager.listen(fieldsOf(mads, 'REQ').serviceIdLo, scope, 8, 'listener');
    side.receive(req.mad, req.from);
    const connection = side.connection('request');
    side.manager.accept(connection, factsOf(fieldsOf(mads, 'REP')), 0);
    const notified = read(side.say()).fields as CmFields<'REP'>;
    expect(side.manager.qpAttributes(connection, QPState.RTR).rqPsn).toBe(notified.startingPsn);
    expect(side.manager.qpAttributes(connection, QPState.RTS).sqPsn).toBe(first(rep.from));
  });
});

describe('our manager in the place of a rejecting one', () => {
  it.each([
    ['cm-nobody', false],
    ['cm-rejected', true],
  ])('answers as the kernel did in %s', (name, listens) => {
    const mads = madsOf(name);
    const [req, rej] = [madNamed(mads, 'REQ'), madNamed(mads, 'REJ')];
    const side = new Side(req.to);
    const { reason, privateData } = fieldsOf(mads, 'REJ');
    if (listens) {
      const scope = { port: undefined, gid: undefined, family: undefined };
      side.manager.listen(fieldsOf(mads, 'REQ').serviceIdLo, scope, 8, 'listener');
    }
    side.receive(req.mad, req.from);
    if (listens) side.manager.reject(side.connection('request'), reason, privateData, 0);
    expectSame(side.say(), rej.mad, ['localCommId']);
  });
});

describe('our manager in the place of a datagram service', () => {
  const mads = madsOf('cm-sidr');
  const [req, rep] = [madNamed(mads, 'SIDR_REQ'), madNamed(mads, 'SIDR_REP')];
  const { serviceIdLo, privateData, pkey } = fieldsOf(mads, 'SIDR_REQ');
  const service = fieldsOf(mads, 'SIDR_REP');

  it('answers as the kernel does', () => {
    const side = new Side(req.to);
    const scope = { port: undefined, gid: undefined, family: undefined };
    side.manager.listen(serviceIdLo, scope, 8, 'listener');
    side.receive(req.mad, req.from);
    side.manager.answerService(side.connection('service-request'), service, 0);
    expectSame(side.say(), rep.mad, []);
  });

  it('sends requests as the kernel does', () => {
    const side = new Side(req.from);
    const grh = { flowLabel: 0, hopLimit: 64, trafficClass: 0, pkey, pathMtu: 3 };
    const ends = { port: side.port, sgid: req.from, sgidIndex: 1, dgid: req.to };
    const path = { ...ends, ...grh, packetLifeTime: 18 };
    side.manager.askService(serviceIdLo, path, privateData, 'asker', 0);
    expectSame(side.say(), req.mad, ['requestId'], true);
  });
});
