/* The version of the library, and statuses.

   A function that takes a status writes success or failure into it, so that one status serves many calls. NULL is
   allowed in its place: the failure then shows only in what the function returns. */
#ifndef MAX_C_COMMON_H
#define MAX_C_COMMON_H
#include "max/c/types.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Returns the version of Einkorn that the library was built from, such as "0.1.0". The text is constant. */
EINKORN_API const char *M_version(void);

/* *** Statuses *** */

/* Returns a new status that says success, or NULL where there is no memory. M_freeStatus frees it. */
EINKORN_API M_Status *M_newStatus(void);

/* Returns the text of the failure: the error code, what is wrong, what was expected and what came. It is empty after a
   success. The status owns the text, which is valid until the status is used again or freed. */
EINKORN_API const char *M_getError(const M_Status *status);

/* Returns 1 after a failure, and 0 after a success or where `status` is NULL. */
EINKORN_API int M_isError(const M_Status *status);

/* Frees a status and its text. NULL is ignored. */
EINKORN_API void M_freeStatus(M_Status *status);

#ifdef __cplusplus
}
#endif
#endif
