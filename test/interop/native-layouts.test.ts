/**
 * The struct layouts and numbers of the native bridge against the installed headers: a program that
 * is generated from the table prints the real ones.
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import {
  Access,
  AsyncEventType,
  CMEventType,
  QPState,
  SendFlag,
  WCFlag,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import { CONSTANTS, LAYOUTS, type StructLayout } from '#native-bridge/rdma/layouts';
import { describeWith } from '../support/prerequisites.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** Numbers of the contract that the bridge passes to the library unchanged. */
const CONTRACT_NUMBERS: Readonly<Record<string, number>> = {
  IBV_ACCESS_LOCAL_WRITE: Access.localWrite,
  IBV_ACCESS_REMOTE_WRITE: Access.remoteWrite,
  IBV_ACCESS_REMOTE_READ: Access.remoteRead,
  IBV_ACCESS_REMOTE_ATOMIC: Access.remoteAtomic,
  IBV_ACCESS_MW_BIND: Access.mwBind,
  IBV_ACCESS_ZERO_BASED: Access.zeroBased,
  IBV_QPS_RESET: QPState.RESET,
  IBV_QPS_INIT: QPState.INIT,
  IBV_QPS_RTR: QPState.RTR,
  IBV_QPS_RTS: QPState.RTS,
  IBV_QPS_SQD: QPState.SQD,
  IBV_QPS_SQE: QPState.SQE,
  IBV_QPS_ERR: QPState.ERR,
  IBV_WR_RDMA_WRITE: WROpcode.rdmaWrite,
  IBV_WR_SEND: WROpcode.send,
  IBV_WR_RDMA_READ: WROpcode.rdmaRead,
  IBV_WR_ATOMIC_CMP_AND_SWP: WROpcode.atomicCmpAndSwap,
  IBV_WR_ATOMIC_FETCH_AND_ADD: WROpcode.atomicFetchAndAdd,
  IBV_WR_LOCAL_INV: WROpcode.localInv,
  IBV_WR_SEND_WITH_INV: WROpcode.sendWithInv,
  IBV_SEND_FENCE: SendFlag.fence,
  IBV_SEND_SIGNALED: SendFlag.signaled,
  IBV_SEND_SOLICITED: SendFlag.solicited,
  IBV_SEND_INLINE: SendFlag.inline,
  IBV_WC_SEND: WCOpcode.send,
  IBV_WC_RDMA_WRITE: WCOpcode.rdmaWrite,
  IBV_WC_RDMA_READ: WCOpcode.rdmaRead,
  IBV_WC_COMP_SWAP: WCOpcode.compSwap,
  IBV_WC_FETCH_ADD: WCOpcode.fetchAdd,
  IBV_WC_LOCAL_INV: WCOpcode.localInv,
  IBV_WC_RECV: WCOpcode.recv,
  IBV_WC_SUCCESS: WCStatus.success,
  IBV_WC_LOC_LEN_ERR: WCStatus.locLenErr,
  IBV_WC_LOC_QP_OP_ERR: WCStatus.locQpOpErr,
  IBV_WC_LOC_PROT_ERR: WCStatus.locProtErr,
  IBV_WC_WR_FLUSH_ERR: WCStatus.wrFlushErr,
  IBV_WC_BAD_RESP_ERR: WCStatus.badRespErr,
  IBV_WC_LOC_ACCESS_ERR: WCStatus.locAccessErr,
  IBV_WC_REM_INV_REQ_ERR: WCStatus.remInvReqErr,
  IBV_WC_REM_ACCESS_ERR: WCStatus.remAccessErr,
  IBV_WC_REM_OP_ERR: WCStatus.remOpErr,
  IBV_WC_RETRY_EXC_ERR: WCStatus.retryExcErr,
  IBV_WC_RNR_RETRY_EXC_ERR: WCStatus.rnrRetryExcErr,
  IBV_WC_FATAL_ERR: WCStatus.fatalErr,
  IBV_WC_GENERAL_ERR: WCStatus.generalErr,
  IBV_WC_GRH: WCFlag.grh,
  IBV_WC_WITH_IMM: WCFlag.withImm,
  IBV_WC_WITH_INV: WCFlag.withInv,
  IBV_EVENT_CQ_ERR: AsyncEventType.cqErr,
  IBV_EVENT_QP_FATAL: AsyncEventType.qpFatal,
  IBV_EVENT_QP_REQ_ERR: AsyncEventType.qpReqErr,
  IBV_EVENT_QP_ACCESS_ERR: AsyncEventType.qpAccessErr,
  IBV_EVENT_COMM_EST: AsyncEventType.commEst,
  IBV_EVENT_SQ_DRAINED: AsyncEventType.sqDrained,
  IBV_EVENT_DEVICE_FATAL: AsyncEventType.deviceFatal,
  IBV_EVENT_PORT_ACTIVE: AsyncEventType.portActive,
  IBV_EVENT_PORT_ERR: AsyncEventType.portErr,
  IBV_EVENT_SRQ_LIMIT_REACHED: AsyncEventType.srqLimitReached,
  IBV_EVENT_QP_LAST_WQE_REACHED: AsyncEventType.qpLastWqeReached,
  IBV_EVENT_GID_CHANGE: AsyncEventType.gidChange,
  RDMA_CM_EVENT_ADDR_RESOLVED: CMEventType.addrResolved,
  RDMA_CM_EVENT_ADDR_ERROR: CMEventType.addrError,
  RDMA_CM_EVENT_ROUTE_RESOLVED: CMEventType.routeResolved,
  RDMA_CM_EVENT_ROUTE_ERROR: CMEventType.routeError,
  RDMA_CM_EVENT_CONNECT_REQUEST: CMEventType.connectRequest,
  RDMA_CM_EVENT_CONNECT_RESPONSE: CMEventType.connectResponse,
  RDMA_CM_EVENT_CONNECT_ERROR: CMEventType.connectError,
  RDMA_CM_EVENT_UNREACHABLE: CMEventType.unreachable,
  RDMA_CM_EVENT_REJECTED: CMEventType.rejected,
  RDMA_CM_EVENT_ESTABLISHED: CMEventType.established,
  RDMA_CM_EVENT_DISCONNECTED: CMEventType.disconnected,
  RDMA_CM_EVENT_DEVICE_REMOVAL: CMEventType.deviceRemoval,
  RDMA_CM_EVENT_TIMEWAIT_EXIT: CMEventType.timewaitExit,
};

const structs: [string, StructLayout][] = Object.entries(LAYOUTS);
const numbers: [string, number][] = Object.entries({ ...CONSTANTS, ...CONTRACT_NUMBERS });

/** A program that prints `NAME VALUE` for every number of the tables. */
function probeSource(): string {
  const lines = structs.flatMap(([struct, { fields }]) => [
    `print("${struct}", sizeof(struct ${struct}));`,
    ...Object.keys(fields).flatMap((field) => [
      `print("${struct}.${field} offset", offsetof(struct ${struct}, ${field}));`,
      `print("${struct}.${field} length", sizeof(((struct ${struct} *)0)->${field}));`,
    ]),
  ]);
  return `#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

static void print(const char *name, unsigned long value) { printf("%s=%lu\\n", name, value); }

int main(void) {
  ${[...lines, ...numbers.map(([name]) => `print("${name}", ${name});`)].join('\n  ')}
  return 0;
}
`;
}

describeWith(['native'], 'the layouts of the native bridge', () => {
  const directory = temporaryFolder();
  let installed: ReadonlyMap<string, number>;

  beforeAll(() => {
    const source = join(directory, 'probe.c');
    const program = join(directory, 'probe');
    writeFileSync(source, probeSource());
    execFileSync('gcc', ['-Wall', '-Werror', '-o', program, source]);
    const lines = execFileSync(program, { encoding: 'utf8' }).trim().split('\n');
    installed = new Map(
      lines.map((line) => {
        const [name = '', value] = line.split('=');
        return [name, Number(value)];
      }),
    );
  });

  it.each(structs)('struct %s matches the header', (struct, { size, fields }) => {
    const expected = Object.entries(fields).flatMap(([field, [offset, length]]) => [
      [`${struct}.${field} offset`, offset],
      [`${struct}.${field} length`, length],
    ]);
    const found = expected.map(([name]) => [name, installed.get(String(name))]);
    expect(installed.get(struct)).toBe(size);
    expect(found).toEqual(expected);
  });

  it.each(numbers)('%s is %i', (name, value) => {
    expect(installed.get(name)).toBe(value);
  });
});
