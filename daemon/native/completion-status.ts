/** Statuses of completions, from verbs to the rings. */
import { WCStatus } from '../../verbs-api/contract/enums.ts';
import { CQEStatus } from '../../verbs-api/contract/queue-layout.ts';

/** `WCStatus` to `CQEStatus`; what the rings cannot say is a general error. */
export const CQE_STATUSES: ReadonlyMap<number, CQEStatus> = new Map<number, CQEStatus>([
  [WCStatus.success, CQEStatus.success],
  [WCStatus.locLenErr, CQEStatus.locLenErr],
  [WCStatus.locQpOpErr, CQEStatus.locQpOpErr],
  [WCStatus.locProtErr, CQEStatus.locProtErr],
  [WCStatus.wrFlushErr, CQEStatus.wrFlushErr],
  [WCStatus.mwBindErr, CQEStatus.mwBindErr],
  [WCStatus.badRespErr, CQEStatus.badRespErr],
  [WCStatus.locAccessErr, CQEStatus.locAccessErr],
  [WCStatus.remInvReqErr, CQEStatus.remInvReqErr],
  [WCStatus.remAccessErr, CQEStatus.remAccessErr],
]);
