/** Why a queue refuses a request, in words: of the emulated device's rings and of native lists. */
import { describe, expect, it } from 'vitest';
import { WROpcode } from '#contract/verbs/enums';
import { requestName } from '#contract/verbs/post-refusal';
import type { RecvWR, SendFields } from '#contract/verbs/work-request';
import { traitsOf } from '#native-bridge/rdma/device-traits';
import { checkReceives, checkSends, type PostLimits } from '#native-bridge/rdma/work-request-list';
import { ReceiveRing } from '#verbs-api/client/receive-ring';
import { SendRing } from '#verbs-api/client/send-ring';

const ELEMENT = 120;
const mr = { sge: () => sge, address: 4096n, length: 8, lkey: 1 };
const sge = { addr: 4096, length: 8, lkey: 1 };
const remote = { remoteAddr: 0, rkey: 1 };
const bytes = new Uint8Array(4);
const words = 'signaled';

const nativeLimits: PostLimits = {
  device: 'siw0',
  traits: traitsOf(0),
  atomics: true,
  maxSendSge: 2,
  maxRecvSge: 1,
  maxSgeRead: 1,
  maxInline: 16,
};

const sends: readonly [string, object, string][] = [
  [
    'flags as a word',
    { opcode: WROpcode.send, flags: words, inlineData: bytes },
    "request 0 (send): flags is the string 'signaled', not bits of SendFlag",
  ],
  [
    'a misspelt list of a Send',
    { opcode: WROpcode.send, sgl: [sge] },
    "request 0 (send): unknown field 'sgl'; did you mean 'sgList'?",
  ],
  [
    'a misspelt list of a Write',
    { opcode: WROpcode.rdmaWrite, ...remote, sglist: [sge] },
    "request 0 (rdmaWrite): unknown field 'sglist'; did you mean 'sgList'?",
  ],
  [
    'misspelt inline data',
    { opcode: WROpcode.send, flags: 8, inlinedata: bytes },
    "request 0 (send): unknown field 'inlinedata'; did you mean 'inlineData'?",
  ],
  [
    'a misspelt key',
    { opcode: WROpcode.rdmaWrite, remoteAddr: 0, rKey: 1, sgList: [sge] },
    "request 0 (rdmaWrite): unknown field 'rKey'; did you mean 'rkey'?",
  ],
  [
    'an opcode as a word',
    { opcode: 'send', sgList: [sge] },
    "request 0: opcode is the string 'send', not one of WROpcode: use WROpcode.send",
  ],
  [
    'inline data that was transferred',
    { opcode: WROpcode.send, inlineData: transferred() },
    'request 0 (send): inlineData no longer has memory: its ArrayBuffer was transferred',
  ],
  ['no opcode', { sgList: [sge] }, 'request 0: opcode is required: one of WROpcode'],
  [
    'a region as an SGE',
    { opcode: WROpcode.send, sgList: [mr] },
    'request 0 (send): SGE 0 is a memory region: pass mr.sge()',
  ],
  [
    'an empty SGE',
    { opcode: WROpcode.send, sgList: [{}] },
    'request 0 (send): SGE 0: addr is required: a safe integer from 0 on or a bigint',
  ],
];

describe('a refused send request', () => {
  it.each(sends)('with %s is explained', (_name, wr, text) => {
    expect(refusedSend(wr as SendFields)).toBe(text);
  });

  it.each(sends)('with %s is refused by a native queue, too', (_name, wr) => {
    expect(checkSends([wr as SendFields], nativeLimits).code).toBe('EINVAL');
  });

  it('binds nothing without the parameters of the bind', () => {
    expect(refusedSend({ opcode: WROpcode.bindMW, bind: {} } as SendFields)).toBe(
      'request 0 (bindMW): bind.rkey is required: an unsigned 32-bit number',
    );
  });

  it('may have extra fields beside a payload', () => {
    const wr = { opcode: WROpcode.send, note: 'mine', sgList: [sge] };
    expect(sendRing().post(wr)).toBeUndefined();
    expect(checkSends([wr], nativeLimits).code).toBeUndefined();
  });
});

const receives: readonly [string, object, string][] = [
  ['a misspelt list', { sgl: [sge] }, "request 0: unknown field 'sgl'; did you mean 'sgList'?"],
  [
    'an empty list and an unknown field',
    { sgList: [], wrID: 1 },
    "request 0: unknown field 'wrID'; did you mean 'wrId'?",
  ],
  ['no list', { wrId: 1 }, 'request 0: sgList is required'],
  ['a region as an SGE', { sgList: [mr] }, 'request 0: SGE 0 is a memory region: pass mr.sge()'],
];

describe('a refused receive', () => {
  it.each(receives)('with %s is explained', (_name, wr, text) => {
    const ring = new ReceiveRing(new Uint8Array(ELEMENT), 0, 1, 1);
    const code = ring.post(wr as RecvWR);
    expect(code).toBe('EINVAL');
    const why = code === undefined ? '' : ring.explain(wr as RecvWR, code);
    expect(`${requestName(0, wr as RecvWR)}: ${why}`).toBe(text);
  });

  it.each(receives)('with %s is refused by a native queue, too', (_name, wr) => {
    expect(checkReceives([wr as RecvWR], nativeLimits).code).toBe('EINVAL');
  });
});

function transferred(): Uint8Array {
  const bytes = new Uint8Array(4);
  structuredClone(bytes, { transfer: [bytes.buffer] });
  return bytes;
}

function sendRing(): SendRing {
  return new SendRing(new Uint8Array(ELEMENT), {
    count: 1,
    maxSge: 2,
    maxInline: 16,
    sqSigAll: false,
  });
}

function refusedSend(wr: SendFields): string | undefined {
  const ring = sendRing();
  const code = ring.post(wr);
  return code === undefined ? undefined : `${requestName(0, wr)}: ${ring.explain(wr, code)}`;
}
