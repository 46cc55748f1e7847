/**
 * The suite on the native bridge over Linux's siw. It runs in a guest that names two siw devices as
 * the fixture wants them, with the addresses of the first in $IWARPD_SUITE_ADDRESSES.
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
