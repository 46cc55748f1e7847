import { expect, it } from 'vitest';
import { assertReason, assertReplyReason } from '#test/support/reasons';

it('a refusal without its own reason fails the tests and fuzzers that trigger it', () => {
  expect(() => assertReason('EINVAL', 'invalid argument')).toThrow('without a reason');
  expect(() => assertReason('EINVAL', '')).toThrow('without a reason');
  expect(() => assertReplyReason({ status: -22 })).toThrow('no reason');
  expect(() => assertReplyReason({ status: -11 })).not.toThrow();
  expect(() => assertReason('EINVAL', 'needs dest_qp_num in attr_mask')).not.toThrow();
});
