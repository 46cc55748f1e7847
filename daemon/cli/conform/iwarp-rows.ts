/**
 * Rows for an iWARP peer over TCP: startup, FPDUs, segments, operations, Terminates (RFC 5044,
 * 6581, 5041, 5040).
 */
import { RDMAPOpcode, rdmapControl } from '#daemon/iwarp/wire/rdmap-header';
import {
  type ReceivedTerminate,
  TERMINATE_ERRORS,
  type TerminateErrorName,
  terminateErrorText,
} from '#daemon/iwarp/wire/terminate';
import {
  fpduOf,
  hasCleanControl,
  type IwarpConnection,
  type PeerSegment,
  terminateIn,
} from './iwarp-connection.ts';
import type { IwarpPeer } from './iwarp-peer.ts';
import {
  advertise,
  advertOf,
  ping,
  read,
  readRequestOf,
  requestIn,
  sendOf,
  tagged,
  untagged,
} from './iwarp-ping.ts';
import { type Offer, RECEIVE_BYTES, regionBytes } from './offer.ts';
import { type ConformRow, demand, demandSame } from './row.ts';
import { pingText, SINK, SOURCE } from './tester-memory.ts';

const TEXT = pingText(64);
/** An STag that the peer never issued. */
const WRONG_STAG = 0x7fff_ff77;
const EMPTY = new Uint8Array(0);

type Body = (connection: IwarpConnection, peer: IwarpPeer) => Promise<void>;
type MemoryBody = (connection: IwarpConnection, offer: Offer) => Promise<void>;

function row(
  id: string,
  area: string,
  source: string,
  title: string,
  body: Body,
): ConformRow<IwarpPeer> {
  const run = async (peer: IwarpPeer) => body(await peer.connect(), peer);
  return { id, area, level: 'must', source, title, run };
}

/** A row about a connection before startup. */
function startupRow(id: string, source: string, title: string, body: Body): ConformRow<IwarpPeer> {
  const run = async (peer: IwarpPeer) => body(await peer.dial(), peer);
  return { id, area: 'startup', level: 'must', source, title, run };
}

/** A row that uses memory of the peer. */
function memoryRow(
  id: string,
  area: string,
  source: string,
  title: string,
  body: MemoryBody,
): ConformRow<IwarpPeer> {
  const run = async (peer: IwarpPeer) => body(...(await peer.connectToMemory()));
  return { id, area, level: 'must', source, title, needs: 'memory', run };
}

/** A row in which the peer must answer this segment with one of these Terminates. */
function refusal(
  id: string,
  source: string,
  title: string,
  names: readonly TerminateErrorName[],
  send: (connection: IwarpConnection) => void,
): ConformRow<IwarpPeer> {
  return row(id, 'errors', source, title, async (connection) => {
    send(connection);
    await terminated(connection, names);
  });
}

async function terminated(
  connection: IwarpConnection,
  names: readonly TerminateErrorName[],
): Promise<void> {
  checkTerminate(await connection.terminate(), names);
}

function checkTerminate(
  { layer, etype, code, name }: ReceivedTerminate,
  names: readonly TerminateErrorName[],
): void {
  const expected = names.map((each) => TERMINATE_ERRORS[each].text).join(' or ');
  const right = name !== undefined && names.includes(name);
  demand(
    right,
    `expected a Terminate of ${expected}, received ${terminateErrorText(layer, etype, code)}`,
  );
}

/** Shows that the connection still works: the peer answers an RDMA Read. */
async function serves(connection: IwarpConnection): Promise<void> {
  advertise(connection, SOURCE, TEXT.length);
  requestIn(await connection.segment('a Read Request'));
}

export const IWARP_ROWS: readonly ConformRow<IwarpPeer>[] = [
  startupRow(
    'MPA-7.1.1-04',
    'RFC 5044 §7.1.1',
    'A Request is answered by a Reply with its key',
    async (connection) => {
      await connection.start();
    },
  ),
  startupRow(
    'EMPA-10-01',
    'RFC 6581 §10',
    'An enhanced Request is answered by an enhanced Reply',
    async (connection) => {
      const reply = await connection.start();
      demand(reply.revision === 2, `the Reply has revision ${reply.revision}`);
      demand(reply.enhanced !== undefined, 'the Reply has no enhanced data');
    },
  ),
  startupRow(
    'EMPA-10-02',
    'RFC 6581 §10',
    'A Request of revision 1 is answered by a Reply of revision 1',
    async (connection) => {
      const reply = await connection.start({ revision: 1, enhanced: undefined });
      demand(reply.revision === 1, `the Reply has revision ${reply.revision}`);
    },
  ),
  startupRow(
    'EMPA-9.2-05',
    'RFC 6581 §9.2',
    'The Reply repeats the model of the Request: client and server',
    async (connection) => {
      const reply = await connection.start();
      demand(reply.enhanced?.peerToPeer === false, 'the Reply asks for the peer-to-peer model');
    },
  ),
  startupRow(
    'MPA-7.1.1-10',
    'RFC 5044 §7.1.1',
    'A Request that wants CRCs gets FPDUs with CRCs',
    async (connection) => {
      await connection.start({ crc: true });
      advertise(connection, SOURCE, TEXT.length);
      const segment = await connection.segment('a Read Request');
      demand(segment.crcRight, 'the CRC of the first FPDU is wrong');
    },
  ),
  startupRow(
    'MPA-7.1.1-03',
    'RFC 5044 §7.1.1',
    'A Request with another key is not answered, and the connection closed',
    async (connection) => {
      connection.sendFrame({}, (frame) => frame.set([0x58], 5));
      await connection.over();
      demand(connection.unread.length === 0, 'the peer sent bytes before it closed');
    },
  ),
  startupRow(
    'MPA-7.1.2-15',
    'RFC 5044 §7.1.2',
    'A Reply where a Request is due is not answered, and the connection closed',
    async (connection) => {
      connection.sendFrame({}, (frame) => frame.set([0x70], 9));
      await connection.over();
      demand(connection.unread.length === 0, 'the peer sent bytes before it closed');
    },
  ),
  startupRow(
    'MPA-7.1.2-03',
    'RFC 5044 §7.1.1, §7.1.2',
    'A Request with too much private data is not answered, and the connection closed',
    async (connection) => {
      connection.sendFrame({}, (frame) => frame.set([0x02, 0x01], 18));
      await connection.over();
      demand(connection.unread.length === 0, 'the peer sent bytes before it closed');
    },
  ),
  startupRow(
    'MPA-7.1.1-14',
    'RFC 5044 §7.1.1',
    'Reserved bits of a Request are ignored',
    async (connection) => {
      connection.sendFrame({}, (frame) => frame.set([(frame[16] as number) | 0x08], 16));
      const reply = await connection.replyFrame();
      demand(typeof reply !== 'string' && !reply.rejected, 'the peer did not accept');
    },
  ),
  row(
    'MPA-7.1.2-11',
    'startup',
    'RFC 5044 §7.1.2',
    'The responder sends no FPDU before it has received one',
    async (connection, peer) => {
      // Once a second, later connection has been used, the first one has had time to answer.
      await serves(await peer.connect());
      demand(connection.unread.length === 0, 'the peer sent bytes after its Reply');
      await serves(connection);
    },
  ),
  row(
    'MPA-5.1-05',
    'FPDUs',
    'RFC 5044 §5.1',
    'FPDUs are found in any division of the stream',
    async (connection) => {
      for (const byte of fpduOf(sendOf(connection, advertOf(SOURCE, TEXT.length)))) {
        await connection.sendAlone(Uint8Array.of(byte));
      }
      requestIn(await connection.segment('a Read Request'));
    },
  ),
  row(
    'MPA-4.4-16',
    'FPDUs',
    'RFC 5044 §4.4, §8',
    'An FPDU with a wrong CRC ends the connection, and is not delivered',
    async (connection) => {
      connection.sendUlpdu(sendOf(connection, advertOf(SOURCE, TEXT.length)), (fpdu) => {
        fpdu[fpdu.length - 1] = (fpdu.at(-1) as number) ^ 1;
      });
      const first = await connection.segmentOrEnd();
      if (first !== 'end') checkTerminate(terminateIn(first), ['mpaCrc']);
    },
  ),
  ownRow('MPA-4.1-03', 'RFC 5044 §4.1', 'Padding of the peer’s FPDUs is 0', ({ padding }) => {
    demand(
      padding.every((byte) => byte === 0),
      'its padding is not 0',
    );
  }),
  ownRow('MPA-4.4-09', 'RFC 5044 §4.4', 'The peer’s FPDUs have the right CRC', ({ crcRight }) => {
    demand(crcRight, 'its CRC is wrong');
  }),
  ownRow(
    'DDP-4.1-09',
    'RFC 5041 §4.1',
    'Reserved bits of the peer’s DDP headers are 0',
    ({ ulpdu }) => {
      demand(
        hasCleanControl(ulpdu[0] as number),
        `its control byte is 0x${ulpdu[0]?.toString(16)}`,
      );
    },
  ),
  ownRow(
    'DDP-4.1-11',
    'RFC 5041 §4.1',
    'The DDP version of the peer’s segments is 1',
    ({ header }) => {
      demand(header.version === 1, `it is ${header.version}`);
    },
  ),
  ownRow(
    'RDMAP-4.1-04',
    'RFC 5040 §4.1',
    'The RDMAP version of the peer’s segments is 1',
    ({ header }) => {
      demand(header.ulp >>> 6 === 1, `it is ${header.ulp >>> 6}`);
    },
  ),
  ownRow(
    'RDMAP-4.1-06',
    'RFC 5040 §4.1',
    'Reserved bits of the peer’s RDMAP control are 0',
    ({ header }) => {
      demand((header.ulp & 0x30) === 0, `its control byte is 0x${header.ulp.toString(16)}`);
    },
  ),
  ownRow(
    'RDMAP-4.1-09',
    'RFC 5040 §4.1',
    'The invalidate field is 0 in messages that have none',
    ({ header }) => {
      demand(header.tagged || header.ulpWord === 0, 'it is not 0');
    },
  ),
  row(
    'DDP-4.3-06',
    'segments',
    'RFC 5041 §4.3',
    'The MSNs of a queue begin with 1 and increase by 1',
    async (connection) => {
      const { readRequest, sends } = await ping(connection, TEXT);
      const numbers = [readRequest, ...sends].map(({ header }) => (header.tagged ? 0 : header.msn));
      demand(
        numbers.join() === '1,1,2',
        `the Read Request and two Sends have ${numbers.join(', ')}`,
      );
    },
  ),
  row(
    'RDMAP-5.2.1-01',
    'segments',
    'RFC 5040 §4.4, §5.2.1',
    'A Read names the STag, offset and size that the program gave',
    async (connection) => {
      advertise(connection, SOURCE, TEXT.length);
      const { sourceStag, sourceToHi, sourceToLo, size } = requestIn(
        await connection.segment('a Read Request'),
      );
      const address = (BigInt(sourceToHi) << 32n) | BigInt(sourceToLo);
      const right =
        sourceStag === SOURCE.rkey && address === SOURCE.address && size === TEXT.length;
      demand(
        right,
        `it names ${size} bytes at 0x${address.toString(16)} of STag 0x${sourceStag.toString(16)}`,
      );
    },
  ),
  row(
    'RDMAP-5.1-01',
    'segments',
    'RFC 5040 §5.1',
    'A Write goes to the STag and offset that the program gave',
    async (connection) => {
      const { writes } = await ping(connection, TEXT);
      const [first] = writes;
      demand(first?.header.tagged === true, 'it is not tagged');
      const address = (BigInt(first.header.toHi) << 32n) | BigInt(first.header.toLo);
      demand(first.header.stag === SINK.rkey && address === SINK.address, 'it goes elsewhere');
      const bytes = Buffer.concat(writes.map(({ payload }) => payload));
      demand(bytes.equals(TEXT), 'it has other bytes than were read');
    },
  ),
  row(
    'DDP-4.1-10',
    'segments',
    'RFC 5041 §4.1',
    'Reserved bits of a DDP header are ignored',
    async (connection) => {
      const advert = advertOf(SOURCE, TEXT.length);
      const ulpdu = sendOf(connection, advert);
      ulpdu[0] = (ulpdu[0] as number) | 0x3c;
      connection.sendUlpdu(ulpdu);
      requestIn(await connection.segment('a Read Request'));
    },
  ),
  row(
    'RDMAP-4.1-07',
    'segments',
    'RFC 5040 §4.1',
    'Reserved bits of an RDMAP control byte are ignored',
    async (connection) => {
      const ulpdu = sendOf(connection, advertOf(SOURCE, TEXT.length));
      ulpdu[1] = (ulpdu[1] as number) | 0x30;
      connection.sendUlpdu(ulpdu);
      requestIn(await connection.segment('a Read Request'));
    },
  ),
  row(
    'DDP-5.2-14',
    'segments',
    'RFC 5041 §5.2',
    'A message may be cut into segments anywhere',
    async (connection) => {
      const advert = advertOf(SOURCE, TEXT.length);
      const msn = connection.nextSendMsn();
      const ulp = rdmapControl(RDMAPOpcode.send);
      for (let mo = 0; mo < advert.length; mo += 1) {
        const last = mo === advert.length - 1;
        connection.sendUlpdu(untagged({ ulp, qn: 0, msn, mo, last }, advert.subarray(mo, mo + 1)));
      }
      requestIn(await connection.segment('a Read Request'));
    },
  ),
  row(
    'RDMAP-5.2.1-11',
    'segments',
    'RFC 5040 §5.2.1',
    'A Read of no bytes needs no STag, and is answered',
    async (connection) => {
      await read(connection, WRONG_STAG, 0n, 0);
    },
  ),
  memoryRow(
    'RDMAP-5.2.2-01',
    'memory',
    'RFC 5040 §5.2.2',
    'A Read returns the memory, to the buffer that the Request named',
    async (connection, { address, key }) => {
      const { bytes } = await read(connection, key, address + 5n, 5000);
      demandSame(bytes, regionBytes(5, 5000), 'the data');
    },
  ),
  memoryRow(
    'DDP-5.2-04',
    'memory',
    'RFC 5041 §5.2',
    'A Write is in place before a later Read returns',
    async (connection, { address, key }) => {
      const data = Uint8Array.from({ length: 700 }, (_, index) => 255 - (index % 251));
      connection.sendUlpdu(tagged(RDMAPOpcode.write, key, address + 3n, data));
      const { bytes } = await read(connection, key, address, 710);
      const expected = regionBytes(0, 710);
      expected.set(data, 3);
      demandSame(bytes, expected, 'the memory');
    },
  ),
  memoryRow(
    'RDMAP-5.2.2-05',
    'memory',
    'RFC 5040 §5.2.2',
    'Reads are answered in their order',
    async (connection, { address, key }) => {
      for (const at of [0n, 100n])
        connection.sendUlpdu(readRequestOf(connection, key, address + at, 10));
      for (const at of [0, 100]) {
        const { payload } = await connection.segment('a Read Response');
        demandSame(payload, regionBytes(at, 10), 'the data');
      }
    },
  ),
  memoryRow(
    'DDP-7.1-13',
    'errors',
    'RFC 5041 §7.1',
    'A Write beyond its memory ends the connection: base or bounds violation',
    async (connection, { address, key, lengthBytes }) => {
      connection.sendUlpdu(
        tagged(RDMAPOpcode.write, key, address + BigInt(lengthBytes) - 2n, new Uint8Array(4)),
      );
      await terminated(connection, ['ddpBounds']);
    },
  ),
  memoryRow(
    'RDMAP-4.8-16',
    'errors',
    'RFC 5040 §4.8',
    'A Read beyond its memory ends the connection: base or bounds violation',
    async (connection, { address, key, lengthBytes }) => {
      connection.sendUlpdu(readRequestOf(connection, key, address + 1n, lengthBytes));
      await terminated(connection, ['rdmapBounds']);
    },
  ),
  memoryRow(
    'DDP-7.1-02',
    'errors',
    'RFC 5041 §7.1',
    'A Send without a receive ends the connection: no buffer available',
    async (connection, { receives }) => {
      for (let sent = 0; sent <= receives; sent += 1)
        connection.sendUlpdu(sendOf(connection, Uint8Array.of(sent)));
      await terminated(connection, ['ddpNoBuffer']);
    },
  ),
  memoryRow(
    'DDP-7.1-04',
    'errors',
    'RFC 5041 §7.1',
    'A Send that is longer than its receive ends the connection: message too long',
    async (connection) => {
      connection.sendUlpdu(sendOf(connection, new Uint8Array(RECEIVE_BYTES + 1)));
      await terminated(connection, ['ddpTooLong']);
    },
  ),
  refusal(
    'DDP-7.1-09',
    'RFC 5041 §7.1',
    'A Write with an STag that does not exist ends the connection: invalid STag',
    ['ddpInvalidStag'],
    (connection) => {
      connection.sendUlpdu(tagged(RDMAPOpcode.write, WRONG_STAG, 0x1000n, new Uint8Array(4)));
    },
  ),
  refusal(
    'RDMAP-4.8-15',
    'RFC 5040 §4.8',
    'A Read with an STag that does not exist ends the connection: invalid STag',
    ['rdmapInvalidStag'],
    (connection) => {
      connection.sendUlpdu(readRequestOf(connection, WRONG_STAG, 0x1000n, 4));
    },
  ),
  refusal(
    'DDP-7.1-01',
    'RFC 5041 §7.1',
    'A segment of a queue that does not exist ends the connection: invalid QN',
    ['ddpInvalidQn'],
    (connection) => {
      const ulp = rdmapControl(RDMAPOpcode.send);
      connection.sendUlpdu(untagged({ ulp, qn: 9, msn: 1 }, EMPTY));
    },
  ),
  refusal(
    'DDP-7.1-05',
    'RFC 5041 §7.1',
    'A Send with a skipped MSN ends the connection: invalid MSN',
    ['ddpInvalidMsn', 'ddpNoBuffer'],
    (connection) => {
      const ulp = rdmapControl(RDMAPOpcode.send);
      connection.sendUlpdu(untagged({ ulp, qn: 0, msn: 1000 }, EMPTY));
    },
  ),
  refusal(
    'DDP-7.2-05',
    'RFC 5041 §7.2',
    'A segment of another DDP version ends the connection: invalid DDP version',
    ['ddpUntaggedVersion'],
    (connection) => {
      const ulpdu = sendOf(connection, EMPTY);
      ulpdu[0] = ((ulpdu[0] as number) & ~3) | 2;
      connection.sendUlpdu(ulpdu);
    },
  ),
  refusal(
    'RDMAP-4.8-22',
    'RFC 5040 §4.8',
    'A message of another RDMAP version ends the connection: invalid RDMAP version',
    ['rdmapInvalidVersion'],
    (connection) => {
      const ulpdu = sendOf(connection, EMPTY);
      ulpdu[1] = ((ulpdu[1] as number) & 0x3f) | 0x80;
      connection.sendUlpdu(ulpdu);
    },
  ),
  refusal(
    'RDMAP-4.8-23',
    'RFC 5040 §4.8',
    'A message of an unknown opcode ends the connection: unexpected opcode',
    ['rdmapUnexpectedOpcode'],
    (connection) => {
      const ulpdu = sendOf(connection, EMPTY);
      ulpdu[1] = ((ulpdu[1] as number) & 0xf0) | 0x0f;
      connection.sendUlpdu(ulpdu);
    },
  ),
  row(
    'RDMAP-4.8-07',
    'errors',
    'RFC 5040 §4.8',
    'A Terminate has a copy of the DDP header in error',
    async (connection) => {
      const ulpdu = tagged(RDMAPOpcode.write, WRONG_STAG, 0x1000n, new Uint8Array(4));
      connection.sendUlpdu(ulpdu);
      const { ddpHeader } = await connection.terminate();
      demand(ddpHeader !== undefined, 'it has none');
      demand(
        Buffer.from(ddpHeader).equals(ulpdu.subarray(0, ddpHeader.length)),
        'its copy differs',
      );
    },
  ),
  row(
    'RDMAP-4.8-02',
    'errors',
    'RFC 5040 §4.8',
    'The control word of a Terminate has the order of the RFC',
    async (connection) => {
      connection.sendUlpdu(tagged(RDMAPOpcode.write, WRONG_STAG, 0x1000n, new Uint8Array(4)));
      const { quirk } = await connection.terminate();
      demand(quirk === undefined, 'layer and type, and the bits M, D and R, are in reverse order');
    },
  ),
  row(
    'DDP-7.1-19',
    'errors',
    'RFC 5041 §7.1, RFC 5040 §5.4',
    'After a Terminate nothing more is answered',
    async (connection) => {
      connection.sendUlpdu(tagged(RDMAPOpcode.write, WRONG_STAG, 0x1000n, new Uint8Array(4)));
      advertise(connection, SOURCE, TEXT.length);
      await connection.terminate();
      await connection.over();
    },
  ),
];

/** A row about the segments of an exchange in which the peer reads, writes and sends. */
function ownRow(
  id: string,
  source: string,
  title: string,
  check: (segment: PeerSegment) => void,
): ConformRow<IwarpPeer> {
  return row(id, 'segments', source, title, async (connection) => {
    // Two bytes, which the peer must pad when it writes them.
    const { readRequest, writes, sends } = await ping(connection, Uint8Array.of(1, 0));
    for (const segment of [readRequest, ...writes, ...sends]) check(segment);
  });
}
