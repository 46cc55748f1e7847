/**
 * The suite on the native bridge. It runs where the installed rdma-core finds devices named as the
 * fixture wants them: `test/interop` arranges that, in a process that the shim is loaded into.
 */
import { nativeFixture } from './native-fixture.ts';
import { complianceSuite } from './suite.ts';

complianceSuite('native', nativeFixture());
