/** Converts completion statuses from verbs to the rings. */
import { CQEStatus } from '#contract/protocol/queue-layout';
import { WCStatus } from '#contract/verbs/enums';

/** `WCStatus` to `CQEStatus`; a status that the rings lack becomes a general error. */
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
  [WCStatus.remOpErr, CQEStatus.remOpErr],
  [WCStatus.retryExcErr, CQEStatus.retryExcErr],
  [WCStatus.rnrRetryExcErr, CQEStatus.rnrRetryExcErr],
]);
