/** What a private daemon is told about its directory. */

/** Environment variable with the directory that goes with the daemon. */
export const DIRECTORY_VARIABLE = 'IWARPD_PRIVATE_DIRECTORY';
