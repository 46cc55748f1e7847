/**
 * The suite on the native bridge over Linux's siw. It runs in a guest with two siw devices named as the
 * fixture expects; the addresses of the first are in $IWARPD_SUITE_ADDRESSES.
 */
import { nativeFixture } from './native-fixture.ts';
import { complianceSuite } from './suite.ts';

/** siw counts its 4 bytes of RFC 6581 and the private data in one byte. */
const SIW_PRIVATE_DATA_MAX = 251;

complianceSuite(
  'native, siw',
  nativeFixture(
    [
      'nearLimits',
      'otherAddresses',
      'smallerDepths',
      'solicitedEvents',
      'overflow',
      'failureEvents',
      'preciseFailures',
      'readRights',
      'foreignReplies',
    ],
    SIW_PRIVATE_DATA_MAX,
  ),
);
