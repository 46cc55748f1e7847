/**
 * The suite on the native bridge. It needs an installed rdma-core that finds devices with the
 * names of the fixture: `test/interop` runs it in a process that preloads the shim.
 */
import { nativeFixture } from './native-fixture.ts';
import { complianceSuite } from './suite.ts';

complianceSuite('native', nativeFixture());
