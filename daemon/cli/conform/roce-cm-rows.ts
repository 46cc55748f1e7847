/** Rows of connection management: the peer's QP 1 (IBTA volume 1, chapter 12; annex A11 for rdma_cm). */
import { type CmMessage, RejectReason, SidrStatus } from '#daemon/roce/wire/cm-message';
import { newTransaction } from './roce-connection.ts';
import type { RocePeer } from './roce-peer.ts';
import { type ConformRow, demand } from './row.ts';

const AREA = 'connection management';
/** A port without a service: rdma_cm's ids never listen at port 0. */
const NO_SERVICE = 0;

export const CM_ROWS: readonly ConformRow<RocePeer>[] = [
  {
    id: 'IBCM-REJ-01',
    area: AREA,
    level: 'must',
    source: 'IBA 12.6.7.2, 12.9.8.3',
    title: 'A REQ for a service without a listener is answered by a REJ, invalid service id',
    run: async ({ management }) => {
      const transaction = newTransaction();
      const request = management.request(NO_SERVICE, {});
      management.say('REQ', transaction, request);
      const { name, fields } = await management.next('a REJ', isFor(request.localCommId));
      demand(name === 'REJ', `expected a REJ, received a ${name}`);
      demand(
        fields.reason === RejectReason.invalidServiceId,
        `expected reason ${RejectReason.invalidServiceId}, received ${fields.reason}`,
      );
    },
  },
  {
    id: 'IBCM-MSG-02',
    area: AREA,
    level: 'must',
    source: 'IBA 12.6, 13.4.6.4',
    title: 'An answer has the transaction id of its message',
    run: async ({ management, port }) => {
      for (const service of [NO_SERVICE, port]) {
        const transaction = newTransaction();
        const request = management.request(service, {});
        management.say('REQ', transaction, request);
        const answer = await management.next('an answer to the REQ', isFor(request.localCommId));
        const { hi, lo } = answer.transaction;
        demand(
          hi === transaction.hi && lo === transaction.lo,
          `the ${answer.name} has transaction ${hex(hi)}:${hex(lo)}, the REQ ${hex(transaction.hi)}:${hex(transaction.lo)}`,
        );
        if (answer.name === 'REP') withdraw(management, request.localCommId, answer);
      }
    },
  },
  {
    id: 'IBCM-DUP-03',
    area: AREA,
    level: 'must',
    source: 'IBA 12.9.8.3',
    title: 'A repeated REQ is answered by the same REP: one connection, one queue pair',
    run: async ({ management, port }) => {
      const transaction = newTransaction();
      // With a response timeout of 69 s, the peer's timer cannot have repeated the second REP.
      const request = management.request(port, { localResponseTimeout: 24 });
      management.say('REQ', transaction, request);
      const first = await management.next('a REP', isFor(request.localCommId));
      demand(first.name === 'REP', `expected a REP, received a ${first.name}`);
      management.say('REQ', transaction, request);
      const second = await management.next('a second REP', isFor(request.localCommId));
      demand(second.name === 'REP', `expected a REP, received a ${second.name}`);
      withdraw(management, request.localCommId, first);
      for (const field of ['localCommId', 'localQpn', 'startingPsn'] as const) {
        const [one, two] = [first.fields[field], second.fields[field]];
        demand(one === two, `${field} of the second REP is ${two}, of the first ${one}`);
      }
    },
  },
  {
    id: 'IBCM-RTY-02',
    area: AREA,
    level: 'must',
    source: 'IBA 12.9.8.5, 12.9.8.6',
    title: 'A REP that is not confirmed is repeated',
    run: async ({ management, port }) => {
      // The response timeout that the REQ asks for: 4.096 µs times 2^14, 67 ms.
      const request = management.request(port, { localResponseTimeout: 14 });
      management.say('REQ', newTransaction(), request);
      const first = await management.next('a REP', isFor(request.localCommId));
      demand(first.name === 'REP', `expected a REP, received a ${first.name}`);
      const second = await management.next('the REP again', isFor(request.localCommId));
      withdraw(management, request.localCommId, first);
      demand(second.name === 'REP', `expected the REP again, received a ${second.name}`);
    },
  },
  {
    id: 'IBCM-DREP-01',
    area: AREA,
    level: 'must',
    source: 'IBA 12.6.10, 12.6.11',
    title: 'A DREQ is answered by a DREP, and so is its repetition',
    run: async (peer) => {
      const { management } = peer;
      const connection = await peer.connect();
      const { localCommId, localQpn, remoteCommId } = connection.reply;
      const ids = { localCommId: remoteCommId, remoteCommId: localCommId, remoteQpn: localQpn };
      const transaction = newTransaction();
      for (const what of ['a DREP', 'a second DREP']) {
        management.say('DREQ', transaction, ids);
        await management.next(what, (message) => {
          return message.name === 'DREP' && message.fields.remoteCommId === remoteCommId;
        });
      }
    },
  },
  {
    id: 'IBCM-DREP-03',
    area: AREA,
    level: 'may',
    source: 'Linux cm_dreq_handler',
    title: 'A DREQ of no connection is answered by a DREP',
    run: async ({ management }) => {
      const transaction = newTransaction();
      const ids = { localCommId: 0x5eed_0001, remoteCommId: 0x5eed_0002, remoteQpn: 0x123456 };
      management.say('DREQ', transaction, ids);
      await management.next('a DREP', (message) => {
        return message.name === 'DREP' && message.fields.remoteCommId === ids.localCommId;
      });
    },
  },
  {
    id: 'IBCM-SIDR-04',
    area: AREA,
    level: 'must',
    source: 'IBA 12.11.1.2',
    title: 'A SIDR REQ for a service without a listener is answered, service not supported',
    run: async ({ management }) => {
      const requestId = 0x5eed_0003;
      const request = { requestId, pkey: 0xffff, serviceIdLo: 0x0111_0000 };
      const { privateData } = management.request(NO_SERVICE, {});
      management.say('SIDR_REQ', newTransaction(), {
        ...request,
        ...(privateData && { privateData }),
      });
      const answer = await management.next('a SIDR REP', (message) => {
        return message.name === 'SIDR_REP' && message.fields.requestId === requestId;
      });
      demand(answer.name === 'SIDR_REP', 'expected a SIDR REP');
      const { status } = answer.fields;
      demand(
        status === SidrStatus.noService,
        `expected status ${SidrStatus.noService}, received ${status}`,
      );
    },
  },
  {
    id: 'ROCE-GSI-01',
    area: AREA,
    level: 'must',
    source: 'IBA 10.2.5, 13.5.3.3',
    title: 'A datagram to QP 1 without its well-known Q_Key is dropped',
    run: async ({ management }) => {
      const wrong = management.request(NO_SERVICE, {});
      management.say('REQ', newTransaction(), wrong, { qkey: 0x1111_1111 });
      const right = management.request(NO_SERVICE, {});
      management.say('REQ', newTransaction(), right);
      const answer = await management.next('a REJ', (message) => {
        return isFor(wrong.localCommId)(message) || isFor(right.localCommId)(message);
      });
      demand(isFor(right.localCommId)(answer), 'the REQ with a wrong Q_Key was answered');
    },
  },
];

function isFor(commId: number | undefined): (message: CmMessage) => boolean {
  return ({ name, fields }) => {
    return (name === 'REP' || name === 'REJ') && fields.remoteCommId === commId;
  };
}

/** Rejects a REP, so that the peer forgets the connection. */
function withdraw(
  management: RocePeer['management'],
  localCommId: number | undefined,
  reply: CmMessage,
): void {
  if (reply.name !== 'REP') return;
  management.say('REJ', reply.transaction, {
    localCommId: localCommId ?? 0,
    remoteCommId: reply.fields.localCommId,
    message: 1,
    reason: RejectReason.consumerDefined,
  });
}

function hex(value: number): string {
  return value.toString(16).padStart(8, '0');
}
